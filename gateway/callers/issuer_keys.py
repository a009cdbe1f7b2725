"""The public keys of token issuers, found by OpenID discovery or at a configured URL, and signature checks with them.

Keys are cached per issuer, so that an issuer that is slow or unavailable delays its own tokens only. Formats:
https://openid.net/specs/openid-connect-discovery-1_0.html (discovery), RFC 7517 (key sets), RFC 8725 (algorithms).
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson
from msgspec import Struct

from gateway.clock import Clock
from gateway.errors import GatewayError, Unavailable
from gateway.runtime.call_merging import SharedCalls
from gateway.runtime.lazy_import import LazyImport

jwk = LazyImport("joserfc.jwk")
jws = LazyImport("joserfc.jws")
jose_errors = LazyImport("joserfc.errors")

# Asymmetric algorithms only. With an HMAC algorithm, a public key would be the secret of its own signatures.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
# The type of the key by the first two letters of the algorithm.
KEY_TYPE_OF = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
KEY_TYPES = frozenset(KEY_TYPE_OF.values())
MAX_BYTES = 256 << 10
MAX_KEYS = 50
# Keys with which a signature is checked. With a key set without ids each token would cost MAX_KEYS checks.
MAX_TRIED_KEYS = 8
MAX_TOKEN_LENGTH = 16_000  # characters
# Limits of RSA keys: bits of the modulus and of the exponent. A check takes less than a millisecond within them.
MIN_RSA_BITS = 2048
MAX_RSA_BITS = 8192
MAX_EXPONENT_BITS = 32
FETCH_TIMEOUT_S = 5.0
REFRESH_AFTER_S = 3600.0
# An unknown key id refreshes the keys at most this often; a failed fetch is repeated at most this often.
RETRY_INTERVAL_S = 30.0
MAX_AGE_S = 86_400.0  # keys that could not be refreshed are used this long
MAX_ISSUERS = 2_000
KIND = "issuer_keys"
UNAVAILABLE = "The keys of the token issuer cannot be loaded now; try again."

# fetch(url) → (status, body) of a guarded GET without redirects. Raises GatewayError.
Fetch = Callable[[str], tuple[int, bytes]]


class InvalidToken(Exception):
    """The token is malformed, or its signature is not valid. The text is safe to show and quotes no token."""


class InvalidKeys(Exception):
    """A key set or a discovery document is malformed. The text is safe to show."""


class GuardedClient(Protocol):
    """The gateway's HTTP client with its guard against private addresses."""

    def request(
        self, method: str, url: str, headers: Mapping[str, str] = ..., *, timeout_s: float = ..., max_bytes: int = ...
    ) -> Any: ...


class KeyStore(Protocol):
    """Storage that outlives the process (`Documents`)."""

    def get(self, kind: str, key: str) -> bytes | None: ...
    def put(self, kind: str, key: str, value: bytes, ttl_s: float) -> None: ...


class KeySource(Struct, frozen=True):
    """Where the keys of an issuer are: found by discovery, at `jwks_url`, or in `jwks`, the text of a key set."""

    issuer: str
    jwks_url: str = ""
    jwks: str = ""

    @property
    def id(self) -> str:
        return hashlib.sha256(f"{self.issuer}\0{self.jwks_url}\0{self.jwks}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class UncheckedToken:
    """A signed token in compact form (RFC 7515) that was decoded, but not verified."""

    algorithm: str
    key_id: str
    claims: Mapping[str, Any] = field(repr=False)
    text: str = field(repr=False)


class _LoadedKeys(Struct):
    """The keys of one issuer; times in monotonic seconds. `tried_at` is the last attempt to load them."""

    keys: tuple[Any, ...] = ()
    loaded_at: float = 0.0
    tried_at: float = 0.0

    def has(self, key_id: str) -> bool:
        return bool(self.keys) and (not key_id or any(key.kid == key_id for key in self.keys))


def fetch_over(client: GuardedClient) -> Fetch:
    """Return a Fetch over the gateway's HTTP client."""

    def fetch(url: str) -> tuple[int, bytes]:
        answer = client.request(
            "GET", url, {"accept": "application/json"}, timeout_s=FETCH_TIMEOUT_S, max_bytes=MAX_BYTES
        )
        return answer.status, answer.body

    return fetch


class IssuerKeys:
    """Loads and caches the keys of issuers. Concurrent callers of one issuer share a fetch; others do not wait."""

    def __init__(self, fetch: Fetch, store: KeyStore, clock: Clock) -> None:
        self._fetch = fetch
        self._store = store
        self._clock = clock
        self._memory: dict[str, _LoadedKeys] = {}
        self._running: SharedCalls[str, _LoadedKeys] = SharedCalls()

    def verify(self, token: UncheckedToken, source: KeySource) -> None:
        """Check the signature of a token. Raises InvalidToken, or Unavailable (code issuer_unavailable)."""
        check_signature(token, self.find(source, token.key_id))

    def find(self, source: KeySource, key_id: str) -> tuple[Any, ...]:
        """Return the keys of a source; they are loaded again if none of them has the id `key_id`.

        Raises Unavailable (code issuer_unavailable).
        """
        source_id = source.id
        entry = self._memory.get(source_id)
        now = self._clock.monotonic()
        if entry is None or self._is_due(entry, source, key_id, now):
            entry = self._running.run(source_id, lambda: self._load(source, source_id))
        if not entry.keys:
            raise Unavailable(UNAVAILABLE, code="issuer_unavailable", retry_after=RETRY_INTERVAL_S)
        return entry.keys

    def _is_due(self, entry: _LoadedKeys, source: KeySource, key_id: str, now: float) -> bool:
        if source.jwks or now - entry.tried_at < RETRY_INTERVAL_S:
            return False
        return now - entry.loaded_at >= REFRESH_AFTER_S or not entry.has(key_id)

    def _load(self, source: KeySource, source_id: str) -> _LoadedKeys:
        now = self._clock.monotonic()
        before = self._memory.get(source_id, _LoadedKeys())
        entry = _LoadedKeys(tried_at=now, loaded_at=now)
        try:
            text = source.jwks or self._fetch_keys(source)
            entry.keys = read_keys(text)
            if not source.jwks:
                self._keep(source_id, text)
        except (InvalidKeys, GatewayError):
            entry.loaded_at = before.loaded_at
            if before.keys and now - before.loaded_at < MAX_AGE_S:
                entry.keys = before.keys
            elif not before.keys:
                entry.keys = self._read_stored(source_id)
                entry.loaded_at = now - REFRESH_AFTER_S
        if source_id not in self._memory and len(self._memory) >= MAX_ISSUERS:
            del self._memory[next(iter(self._memory))]
        self._memory[source_id] = entry
        return entry

    def _fetch_keys(self, source: KeySource) -> str:
        url = source.jwks_url
        if not url:
            document = read_object(self._get(f"{source.issuer.rstrip('/')}/.well-known/openid-configuration"))
            if document.get("issuer") != source.issuer:
                raise InvalidKeys("The discovery document names another issuer.")
            url = str(document.get("jwks_uri") or "")
            if source.issuer.startswith("https:") and not url.startswith("https:"):
                raise InvalidKeys("The discovery document has no https address of its keys.")
        return self._get(url).decode("utf-8", "replace")

    def _get(self, url: str) -> bytes:
        status, body = self._fetch(url)
        if status != 200:
            raise InvalidKeys(f"The issuer answered with status {status}.")
        return body

    def _keep(self, source_id: str, text: str) -> None:
        """Store the keys for workers that start while the issuer is unavailable."""
        try:
            self._store.put(KIND, source_id, text.encode(), MAX_AGE_S)
        except GatewayError:
            return

    def _read_stored(self, source_id: str) -> tuple[Any, ...]:
        try:
            stored = self._store.get(KIND, source_id)
            return read_keys(stored.decode()) if stored is not None else ()
        except (InvalidKeys, GatewayError):
            return ()


def read_object(text: str | bytes) -> dict[str, Any]:
    """Return a JSON object. Raises InvalidKeys."""
    try:
        document = orjson.loads(text)
    except ValueError:
        raise InvalidKeys("It is not JSON.") from None
    if not isinstance(document, dict):
        raise InvalidKeys("It is not a JSON object.")
    return document


def read_keys(text: str) -> tuple[Any, ...]:
    """Return the public signature keys of a key set (RFC 7517). Keys of other kinds are left out.

    Raises InvalidKeys if no key is left.
    """
    entries = read_object(text).get("keys")
    if not isinstance(entries, list):
        raise InvalidKeys("The key set has no list named keys.")
    keys = tuple(_import_keys(entries[:MAX_KEYS]))
    if not keys:
        raise InvalidKeys("The key set has no public RSA, EC or OKP key for signatures.")
    return keys


def _import_keys(entries: Iterable[Any]) -> Iterable[Any]:
    for entry in entries:
        kind = entry.get("kty") if isinstance(entry, dict) else None
        if not isinstance(kind, str) or kind not in KEY_TYPES or entry.get("use", "sig") != "sig":
            continue
        public = {name: value for name, value in entry.items() if name not in ("d", "p", "q", "dp", "dq", "qi", "oth")}
        try:
            key = jwk.import_key(public)
            usable = kind != "RSA" or _is_usable_rsa(key)
        except (jose_errors.JoseError, ValueError, TypeError, KeyError, AttributeError):
            continue
        if usable:
            yield key


def _is_usable_rsa(key: Any) -> bool:
    numbers = key.public_key.public_numbers()
    usable: bool = (
        MIN_RSA_BITS <= numbers.n.bit_length() <= MAX_RSA_BITS and numbers.e.bit_length() <= MAX_EXPONENT_BITS
    )
    return usable


def is_signed_token(text: str) -> bool:
    """Return whether a credential has the form of a JSON Web Token: three parts, the first of them an object."""
    return text.startswith("eyJ") and text.count(".") == 2


def decode(text: str) -> UncheckedToken:
    """Decode a token without a check of its signature. Raises InvalidToken, also for an algorithm that is refused."""
    if len(text) > MAX_TOKEN_LENGTH or not text.isascii():
        raise InvalidToken("The token is too long or has characters that no token has.")
    try:
        parts = jws.extract_compact(text.encode())
        header = parts.headers()
        claims = orjson.loads(parts.payload)  # no lone surrogates, which no store keeps
    except (jose_errors.JoseError, ValueError, TypeError, RecursionError):
        raise InvalidToken("The token is malformed.") from None
    algorithm = header.get("alg")
    key_id = header.get("kid", "")
    if algorithm not in ALGORITHMS:
        raise InvalidToken(f"The token must be signed with one of {', '.join(ALGORITHMS)}.")
    if not isinstance(claims, dict) or not isinstance(key_id, str) or "crit" in header:
        raise InvalidToken("The token is malformed.")
    return UncheckedToken(algorithm, key_id, claims, text)


def check_signature(token: UncheckedToken, keys: Iterable[Any]) -> None:
    """Raise InvalidToken unless one of the keys with the token's key id made its signature."""
    key_type = KEY_TYPE_OF[token.algorithm[:2]]
    fitting = [
        key for key in keys if key.key_type == key_type and not (token.key_id and key.kid and key.kid != token.key_id)
    ]
    fitting.sort(key=lambda key: not key.kid)  # keys with the id of the token come first
    for key in fitting[:MAX_TRIED_KEYS]:
        try:
            jws.deserialize_compact(token.text, key, algorithms=list(ALGORITHMS))
        except (jose_errors.JoseError, ValueError, TypeError):
            continue
        return
    raise InvalidToken("The signature of the token is not valid, or its key is not known.")
