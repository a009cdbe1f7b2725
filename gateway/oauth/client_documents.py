"""Client ID metadata documents: clients that use the https URL of their description as their id.

Any caller can send such a URL. The fetch is therefore guarded against internal addresses, follows no redirects and has
a small size limit. All workers share the stored result for an hour, or for a week while the host is unavailable.
Invalid documents are not stored. Format: https://datatracker.ietf.org/doc/draft-ietf-oauth-client-id-metadata-document/
"""

import hashlib
import json
from typing import Any, Protocol
from urllib.parse import urlsplit

from gateway.clock import SECOND_US, Clock
from gateway.errors import GatewayError
from gateway.oauth import redirects
from gateway.oauth.clients import InvalidMetadata, OAuthApp, make_client, read_metadata
from gateway.store.documents import Documents

MAX_URL_LENGTH = 400
MAX_BYTES = 16 << 10
TIMEOUT_S = 5.0
TTL_S = 3600
MAX_AGE_S = 7 * 86_400.0
KIND = "oauth_client"
# Error codes of a fetch that make the document invalid. After any other error the stored document stays valid.
INVALID_CODES = frozenset(("too_many_redirects", "response_too_large", "address_not_allowed", "invalid_address"))
HEADERS = {"accept": "application/json", "user-agent": "llmgateway"}


class FetchedDocument(Protocol):
    """The response of a fetch."""

    @property
    def status(self) -> int: ...
    @property
    def body(self) -> bytes: ...


class DocumentFetcher(Protocol):
    """Fetches an untrusted URL with guards and a size limit. Raises GatewayError."""

    def fetch(
        self, url: str, max_bytes: int, *, timeout_s: float, headers: dict[str, str], redirects: int
    ) -> FetchedDocument: ...


class DocumentUnavailable(Exception):
    """The host of the document is unavailable."""


class ClientDocuments:
    """Fetches client metadata documents and stores them."""

    def __init__(self, documents: Documents, fetcher: DocumentFetcher, clock: Clock) -> None:
        self._documents = documents
        self._fetcher = fetcher
        self._clock = clock

    def find(self, address: str, may_fetch: bool = True) -> OAuthApp | None:
        """Return the client that the document at `address` describes, or None if there is no valid document.

        Unless `may_fetch`, only a stored document is used, regardless of its age.
        """
        if not may_be_client(address):
            return None
        name = hashlib.sha256(address.encode()).hexdigest()
        now = self._clock.now_us() // SECOND_US
        stored = self._documents.get(KIND, name)
        known = None
        if stored is not None:
            known = json.loads(stored)
        if known is not None and (now < known["until"] or not may_fetch):
            return make_client(address, known["metadata"])
        if not may_fetch:
            return None
        try:
            metadata = self._load(address)
        except DocumentUnavailable:
            # An outage of the host must not sign out the users of its application.
            if known is not None:
                return make_client(address, known["metadata"])
            return None
        if metadata is None:
            if known is not None:
                self._documents.delete(KIND, name)
            return None
        entry = {"until": now + TTL_S, "metadata": metadata}
        self._documents.put(KIND, name, json.dumps(entry).encode(), MAX_AGE_S)
        return make_client(address, metadata)

    def _load(self, address: str) -> dict[str, Any] | None:
        """Fetch the metadata. Returns None for an invalid or missing document; raises DocumentUnavailable."""
        try:
            response = self._fetcher.fetch(address, MAX_BYTES, timeout_s=TIMEOUT_S, headers=HEADERS, redirects=0)
        except GatewayError as error:
            if error.code in INVALID_CODES:
                return None
            raise DocumentUnavailable from None
        if response.status >= 500:
            raise DocumentUnavailable
        try:
            if response.status != 200:
                return None
            document = json.loads(response.body)
            # A public document cannot contain a secret, so the client is public; PKCE binds its codes.
            if not isinstance(document, dict) or document.get("client_id") != address or "client_secret" in document:
                return None
            return read_metadata({**document, "token_endpoint_auth_method": "none"})
        except (InvalidMetadata, ValueError, RecursionError):
            return None


def may_be_client(address: str) -> bool:
    """Return whether a client id can be the URL of a document: https, with a path, in normal form."""
    if not address.startswith("https://") or len(address) > MAX_URL_LENGTH or redirects.problem_of(address):
        return False
    path = urlsplit(address).path
    return path not in ("", "/") and not {".", ".."} & set(path.split("/"))
