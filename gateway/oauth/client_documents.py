"""Applications whose id is the https address of their description (client-ID metadata documents).

The address comes from anybody, so it passes the guard of addresses, is not followed elsewhere, is short, and is kept
for an hour, for all workers; for a week while its host does not answer. A document that is wrong is kept by nobody.
"""

import hashlib
import json
from typing import Any, Protocol
from urllib.parse import urlsplit

from gateway.clock import SECOND_US, Clock
from gateway.errors import GatewayError
from gateway.oauth import redirects
from gateway.oauth.clients import OAuthApp, WrongMetadata, make_client, read_metadata
from gateway.store.documents import Documents

LONGEST_ADDRESS = 400
MOST_BYTES = 16 << 10
PATIENCE_S = 5.0
TTL_S = 3600
STALE_S = 7 * 86_400.0
KIND = "oauth_client"
# Codes of a fetch that say what is there, rather than that nothing answers.
WRONG = frozenset(("too_many_redirects", "response_too_large", "address_not_allowed", "invalid_address"))
HEADERS = {"accept": "application/json", "user-agent": "llmgateway"}


class FetchedDocument(Protocol):
    """What a fetch brings."""

    @property
    def status(self) -> int: ...
    @property
    def body(self) -> bytes: ...


class DocumentFetcher(Protocol):
    """GETs an address that somebody chose, guarded and capped. Raises GatewayError."""

    def fetch(
        self, url: str, max_bytes: int, *, timeout_s: float, headers: dict[str, str], redirects: int
    ) -> FetchedDocument: ...


class Away(Exception):
    """Nobody could be asked just now."""


class ClientDocuments:
    """Those descriptions, fetched and remembered."""

    def __init__(self, documents: Documents, fetcher: DocumentFetcher, clock: Clock) -> None:
        self._documents = documents
        self._fetcher = fetcher
        self._clock = clock

    def find(self, address: str, ask: bool = True) -> OAuthApp | None:
        """The client that the document at `address` describes; None where there is none that is right. Unless its host
        may be asked (`ask`), what is kept counts, however old."""
        if not may_be_client(address):
            return None
        name = hashlib.sha256(address.encode()).hexdigest()
        now = self._clock.now_us() // SECOND_US
        stored = self._documents.get(KIND, name)
        if stored is not None:
            known = json.loads(stored)
        else:
            known = None
        if known is not None and (now < known["until"] or not ask):
            return make_client(address, known["metadata"])
        if not ask:
            return None
        try:
            metadata = self._load(address)
        except Away:
            # A host that is away for a while must not sign out everybody who uses its application.
            if known is not None:
                return make_client(address, known["metadata"])
            return None
        if metadata is None:
            if known is not None:
                self._documents.delete(KIND, name)
            return None
        entry = {"until": now + TTL_S, "metadata": metadata}
        self._documents.put(KIND, name, json.dumps(entry).encode(), STALE_S)
        return make_client(address, metadata)

    def _load(self, address: str) -> dict[str, Any] | None:
        """What the document says, None for one that is wrong or gone. Away."""
        try:
            answer = self._fetcher.fetch(address, MOST_BYTES, timeout_s=PATIENCE_S, headers=HEADERS, redirects=0)
        except GatewayError as error:
            if error.code in WRONG:
                return None
            raise Away from None
        if answer.status >= 500:
            raise Away
        try:
            if answer.status == 200:
                given = json.loads(answer.body)
            else:
                given = None
            # Nobody shares a secret with us by a public document; what such a client could sign with is not asked for,
            # since PKCE binds its codes.
            if not isinstance(given, dict) or given.get("client_id") != address or "client_secret" in given:
                return None
            return read_metadata({**given, "token_endpoint_auth_method": "none"})
        except (WrongMetadata, ValueError, RecursionError):
            return None


def may_be_client(address: str) -> bool:
    """Whether an id can be such an address: https, with a path, to the letter as it is compared."""
    if not address.startswith("https://") or len(address) > LONGEST_ADDRESS or redirects.problem_of(address):
        return False
    path = urlsplit(address).path
    return path not in ("", "/") and not {".", ".."} & set(path.split("/"))
