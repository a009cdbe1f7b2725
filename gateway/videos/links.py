"""Signed links to the content of a video, which open it without an API key for a week (RFC 7515, compact, HS256)."""

import hashlib
import hmac
from typing import Any

from msgspec import DecodeError, Struct, ValidationError, json

from gateway.clock import DAY_US, SECOND_US, Clock
from gateway.errors import Unauthenticated
from gateway.runtime.lazy_import import LazyImport

jws = LazyImport("joserfc.jws")
jwk = LazyImport("joserfc.jwk")
jose_errors = LazyImport("joserfc.errors")

LIFETIME_US = 7 * DAY_US
CONTENT_SECRET = "LLM_VIDEO_CONTENT_JWT_SECRET"
PURPOSE = b"video content"
HEADER = {"alg": "HS256"}
MAX_LENGTH = 1024
INVALID_TOKEN = "The link's token is not valid or has expired: get a new link with GET /v1/videos/<id>."


class Claims(Struct):
    """The claims of a token: `l` is the log's id, `exp` its expiry in seconds."""

    l: str  # noqa: E741 - the name on the wire
    exp: int


class Links:
    """Signs and checks links. `secret` is the operator's; without one, secrets are derived from those of the
    installation, newest first."""

    def __init__(self, secret: str, installation: tuple[bytes, ...], clock: Clock) -> None:
        derived = (hmac.new(key, PURPOSE, hashlib.sha256).digest() for key in installation)
        self._secrets = (secret.encode(),) if secret else tuple(derived)
        self._clock = clock

    def sign(self, log_id: str) -> str:
        """Return the token of a link to the content of a log, valid for a week."""
        claims = Claims(log_id, (self._clock.now_us() + LIFETIME_US) // SECOND_US)
        token: str = jws.serialize_compact(HEADER, json.encode(claims), _key(self._secrets[0]))
        return token

    def check(self, token: str, log_id: str) -> None:
        """Unauthenticated unless the token opens the content of this log now."""
        now_s = self._clock.now_us() // SECOND_US
        claims = [claim for secret in self._secrets if (claim := _read(token, secret)) is not None]
        if not any(claim.l == log_id and claim.exp > now_s for claim in claims):
            raise Unauthenticated(INVALID_TOKEN, code="invalid_video_token")


def _key(secret: bytes) -> Any:
    return jwk.OctKey.import_key(secret)


def _read(token: str, secret: bytes) -> Claims | None:
    if len(token) > MAX_LENGTH:
        return None
    try:
        opened = jws.deserialize_compact(token, _key(secret), algorithms=["HS256"])
        return json.decode(opened.payload, type=Claims)
    except (jose_errors.JoseError, DecodeError, ValidationError, ValueError, TypeError):
        return None
