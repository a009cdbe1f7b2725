"""Applications whose id is the https address of their description (client-ID metadata documents).

The address comes from anybody, so it passes the guard of addresses, is not followed elsewhere, is short, and is kept
for an hour, for all workers. A document that is wrong is kept by nobody.
"""

import hashlib
import json
from typing import Any, Protocol
from urllib.parse import urlsplit

from gateway.errors import GatewayError
from gateway.oauth import redirects
from gateway.oauth.clients import OAuthApp, WrongMetadata, make_client, read_metadata
from gateway.store.documents import Documents

LONGEST_ADDRESS = 400
MOST_BYTES = 16 << 10
PATIENCE_S = 5.0
KEPT_S = 3600.0
KIND = "oauth_client"
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


class ClientDocuments:
    """Those descriptions, fetched and remembered."""

    def __init__(self, documents: Documents, fetcher: DocumentFetcher) -> None:
        self._documents, self._fetcher = documents, fetcher

    def find(self, address: str) -> OAuthApp | None:
        """The client that the document at `address` describes; None where there is none that is right."""
        if not may_be_client(address):
            return None
        name = hashlib.sha256(address.encode()).hexdigest()
        kept = self._documents.get(KIND, name)
        if kept is not None:
            return make_client(address, json.loads(kept))
        metadata = self._load(address)
        if metadata is None:
            return None
        self._documents.put(KIND, name, json.dumps(metadata).encode(), KEPT_S)
        return make_client(address, metadata)

    def _load(self, address: str) -> dict[str, Any] | None:
        try:
            answer = self._fetcher.fetch(address, MOST_BYTES, timeout_s=PATIENCE_S, headers=HEADERS, redirects=0)
            given = json.loads(answer.body) if answer.status == 200 else None
            # Nobody shares a secret with us by a public document; what such a client could sign with is not asked for,
            # since PKCE binds its codes.
            if not isinstance(given, dict) or given.get("client_id") != address or "client_secret" in given:
                return None
            return read_metadata({**given, "token_endpoint_auth_method": "none"})
        except (GatewayError, WrongMetadata, ValueError, RecursionError):
            return None


def may_be_client(address: str) -> bool:
    """Whether an id can be such an address: https, with a path, to the letter as it is compared."""
    if not address.startswith("https://") or len(address) > LONGEST_ADDRESS or redirects.problem_of(address):
        return False
    path = urlsplit(address).path
    return path not in ("", "/") and not {".", ".."} & set(path.split("/"))
