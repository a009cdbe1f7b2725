"""OAuth access tokens from service accounts, for Vertex AI (RFC 7523, as in Google's server-to-server guide)."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import orjson

from gateway.clock import SECOND_US, Clock
from gateway.errors import UpstreamFailed, UpstreamRefused
from gateway.providers.identities.identity_calls import FORM_HEADERS
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.threads import compute
from gateway.transport import Transport

jwt = LazyImport("joserfc.jwt")
jwk = LazyImport("joserfc.jwk")
jose_errors = LazyImport("joserfc.errors")

TOKEN_URL = "https://oauth2.googleapis.com/token"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
LIFETIME_S = 3600
EXPIRY_MARGIN_S = 60.0  # seconds before its expiry from which a token is not used any more
CACHE_SIZE = 512
MAX_KEY_LENGTH = 4_000  # characters; a 4096-bit key has 3,300 and takes 0.2 s to check, an 8192-bit key 3 s
FETCH_TIMEOUT_S = 15.0
ANSWER_LIMIT = 64 * 1024

# fetch(url, headers, body) → (status, body) of a POST; raises UpstreamUnreachable or UpstreamTimeout.
Fetch = Callable[[str, Mapping[str, str], bytes], tuple[int, bytes]]


def fetch_over(transport: Transport) -> Fetch:
    """Return a Fetch over the gateway's HTTP client."""

    def fetch(url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        answer = transport.request("POST", url, headers, body, timeout_s=FETCH_TIMEOUT_S, max_bytes=ANSWER_LIMIT)
        return answer.status, answer.body

    return fetch


@dataclass(slots=True)
class _Entry:
    """The token of one credential; `lock` lets one greenlet fetch it while the others wait."""

    lock: Lock = field(default_factory=Lock)
    token: str = field(default="", repr=False)
    until: float = 0.0


class AccessTokens:
    """Cache of access tokens by credential, until a minute before their expiry; fetches once at a time for each."""

    def __init__(self, fetch: Fetch, clock: Clock, token_url: str = TOKEN_URL) -> None:
        # The token URL in a service account is ignored: callers bring service accounts, and it could name any host.
        self._fetch = fetch
        self._clock = clock
        self._token_url = token_url
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def token(self, secret: str) -> str:
        """Return the access token for a service account's JSON; any other secret is an access token already.

        UpstreamRefused if the JSON is not a service account or Google refuses it; UpstreamFailed if the token service
        fails.
        """
        if not is_service_account(secret):
            return secret
        entry = self._entry(hashlib.sha256(secret.encode()).hexdigest())
        if self._clock.monotonic() < entry.until:
            return entry.token
        with entry.lock:
            if self._clock.monotonic() >= entry.until:
                started = self._clock.monotonic()
                entry.token, lifetime = self._request(_read_account(secret))
                entry.until = started + lifetime - EXPIRY_MARGIN_S
            return entry.token

    def _entry(self, name: str) -> _Entry:
        entry = self._entries.setdefault(name, _Entry())
        self._entries.move_to_end(name)
        if len(self._entries) > CACHE_SIZE:
            self._entries.popitem(last=False)
        return entry

    def _request(self, account: dict[str, Any]) -> tuple[str, float]:
        """Return a new token and its lifetime in seconds."""
        status, body = self._fetch(
            self._token_url, FORM_HEADERS, b"grant_type=" + _quoted(GRANT) + b"&assertion=" + self._sign(account)
        )
        if status >= 500 or status == 429:
            raise UpstreamFailed("The provider's token service failed.", upstream_status=status)
        if status != 200:
            raise UpstreamRefused("The provider refused the gateway's service account.", upstream_status=status)
        try:
            wire = orjson.loads(body)
            return str(wire["access_token"]), float(wire.get("expires_in", LIFETIME_S))
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
            raise UpstreamFailed("The provider's token service returned no token.", upstream_status=status) from None

    def _sign(self, account: dict[str, Any]) -> bytes:
        now = self._clock.now_us() // SECOND_US
        email = account["client_email"]
        claims = {"iss": email, "scope": SCOPE, "aud": self._token_url, "iat": now, "exp": now + LIFETIME_S}
        header = {"alg": "RS256", "typ": "JWT"}
        if account.get("private_key_id"):
            header["kid"] = str(account["private_key_id"])
        pem = account["private_key"]
        try:
            if len(pem) > MAX_KEY_LENGTH:
                raise ValueError
            # The lazy modules are loaded here and not in the thread.
            read_key = jwk.RSAKey.import_key
            encode = jwt.encode
            token: bytes = compute(lambda: encode(header, claims, read_key(pem), algorithms=["RS256"])).encode()
            return token
        except (jose_errors.JoseError, ValueError, TypeError):
            raise UpstreamRefused("The private key of the service account cannot be read.") from None


def is_service_account(secret: str) -> bool:
    """Return whether a credential is the JSON file of a service account."""
    return secret.lstrip().startswith("{")


def _read_account(secret: str) -> dict[str, Any]:
    try:
        account: dict[str, Any] = orjson.loads(secret)
    except orjson.JSONDecodeError:
        raise UpstreamRefused("The service account is not JSON.") from None
    if not all(isinstance(account.get(name), str) and account[name] for name in ("client_email", "private_key")):
        raise UpstreamRefused("The service account lacks client_email or private_key.")
    return account


def _quoted(text: str) -> bytes:
    return text.replace(":", "%3A").encode()
