"""An identity provider for tests: its keys, its signed tokens, and the documents that it publishes."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from joserfc import jwt
from joserfc.jwk import RSAKey

from gateway.errors import UpstreamUnreachable


def make_key(key_id: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": key_id})


def encode_part(part: Mapping[str, Any]) -> str:
    """Return a part of a token in its form on the wire."""
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


class Issuer:
    """An identity provider at a URL. `key` signs its tokens."""

    def __init__(self, url: str, key: RSAKey | None = None) -> None:
        self.url = url
        self.key = key or make_key("one")

    def sign(self, claims: Mapping[str, Any], algorithm: str = "RS256", **header: Any) -> str:
        """Return a token with these claims beside the issuer's name."""
        full = {"alg": algorithm, "kid": self.key.kid, **header}
        return jwt.encode(full, {"iss": self.url, **claims}, self.key, algorithms=[algorithm])

    def key_set(self) -> dict[str, Any]:
        return {"keys": [self.key.as_dict(private=False)]}

    def documents(self) -> dict[str, Any]:
        """Return the published documents by URL."""
        return {
            f"{self.url}/.well-known/openid-configuration": {"issuer": self.url, "jwks_uri": f"{self.url}/keys"},
            f"{self.url}/keys": self.key_set(),
        }


class Web:
    """The documents of several issuers, with the requests for them in order."""

    def __init__(self, *issuers: Issuer) -> None:
        self.documents: dict[str, Any] = {}
        self.requests: list[str] = []
        for issuer in issuers:
            self.publish(issuer)

    def publish(self, issuer: Issuer) -> None:
        self.documents.update(issuer.documents())

    def fetch(self, url: str) -> tuple[int, bytes]:
        self.requests.append(url)
        if url not in self.documents:
            raise UpstreamUnreachable("Nothing answers.")
        return 200, json.dumps(self.documents[url]).encode()
