"""The endpoints of identity providers by OpenID discovery, cached by issuer, and the guarded requests to them."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from gateway.accounts.identity_providers import IdentityProvider, IdentityProviders
from gateway.callers.issuer_keys import InvalidKeys, IssuerKeys, KeyStore, fetch_over, read_object
from gateway.clock import Clock
from gateway.configuration.setting_checks import url_problem
from gateway.errors import GatewayError, Unavailable
from gateway.runtime.call_merging import SharedCalls
from gateway.runtime.fair_threads import FairSlots

WELL_KNOWN = "/.well-known/openid-configuration"
MAX_BYTES = 256 << 10
REFRESH_AFTER_S = 3600.0
MAX_AGE_S = 86_400.0  # a document that could not be refreshed is used this long
RETRY_INTERVAL_S = 15.0
MAX_ISSUERS = 2_000
# Requests to identity providers in this worker, and those to the providers of one person's organizations.
CONCURRENT_REQUESTS = 32
AT_ONCE_EACH = 4
JSON = {"accept": "application/json"}


class GuardedTransport(Protocol):
    """The gateway's HTTP client; `trusted` lifts the guard against private addresses."""

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] = ...,
        body: bytes = ...,
        *,
        timeout_s: float = ...,
        max_bytes: int = ...,
        trusted: bool = ...,
    ) -> Any: ...


class Endpoints(Struct, frozen=True):
    """The discovery document of an issuer, as far as it is used."""

    issuer: str
    authorization: str
    token: str
    keys: str
    userinfo: str = ""
    end_session: str = ""
    auth_methods: tuple[str, ...] = ()
    states_issuer: bool = False


class _Found(Struct):
    """A cached document; times in monotonic seconds."""

    endpoints: Endpoints | None
    problem: str
    loaded_at: float
    tried_at: float


class ProviderRequests:
    """Sends requests to identity providers: with a timeout, a size limit, without redirects, and a few at a time.
    `owner_of` returns who owns a provider: however many organizations a person has, their providers share the same few
    slots."""

    def __init__(
        self, transport: GuardedTransport, timeout_s: float, owner_of: Callable[[IdentityProvider], str]
    ) -> None:
        self._transport = transport
        self._timeout_s = timeout_s
        self._owner_of = owner_of
        self._slots = FairSlots(CONCURRENT_REQUESTS, each=AT_ONCE_EACH)

    def send(
        self,
        provider: IdentityProvider,
        method: str,
        url: str,
        headers: Mapping[str, str] = JSON,
        body: bytes = b"",
    ) -> tuple[int, bytes]:
        """Return status and body of the response. Raises GatewayError.

        Private addresses are reached only at the host of an issuer that the operator configured.
        """
        trusted = provider.trusted and urlsplit(url).netloc == urlsplit(provider.issuer).netloc
        with self._slots.turn(self._owner_of(provider)):
            answer = self._transport.request(
                method, url, headers, body, timeout_s=self._timeout_s, max_bytes=MAX_BYTES, trusted=trusted
            )
        return answer.status, answer.body


class ProviderDiscovery:
    """The endpoints of providers. Concurrent callers of one issuer share a request; others do not wait for it."""

    def __init__(self, requests: ProviderRequests, clock: Clock, allow_http: bool) -> None:
        self._requests = requests
        self._clock = clock
        self._allow_http = allow_http
        self._memory: dict[tuple[str, str], _Found] = {}
        self._running: SharedCalls[tuple[str, str], _Found] = SharedCalls()

    def find(self, provider: IdentityProvider) -> Endpoints:
        """Return the endpoints. Raises Unavailable (code sso_failed) with the reason."""
        key = (provider.organization_id, provider.issuer)
        found = self._memory.get(key)
        if found is None or self._is_due(found):
            found = self._running.run(key, lambda: self._load(provider, key))
        if found.endpoints is None:
            raise Unavailable(f"The identity provider cannot be used now: {found.problem}", code="sso_failed")
        return found.endpoints

    def _is_due(self, found: _Found) -> bool:
        now = self._clock.monotonic()
        if now - found.tried_at < RETRY_INTERVAL_S:
            return False
        return found.endpoints is None or now - found.loaded_at >= REFRESH_AFTER_S

    def _load(self, provider: IdentityProvider, key: tuple[str, str]) -> _Found:
        before = self._memory.get(key)
        now = self._clock.monotonic()
        try:
            found = _Found(self._fetch(provider), "", now, now)
        except (GatewayError, InvalidKeys) as error:
            found = _Found(None, str(error), now, now)
            if before is not None and before.endpoints is not None and now - before.loaded_at < MAX_AGE_S:
                found = _Found(before.endpoints, "", before.loaded_at, now)
        if key not in self._memory and len(self._memory) >= MAX_ISSUERS:
            del self._memory[next(iter(self._memory))]
        self._memory[key] = found
        return found

    def _fetch(self, provider: IdentityProvider) -> Endpoints:
        status, body = self._requests.send(provider, "GET", provider.issuer.rstrip("/") + WELL_KNOWN)
        if status != 200:
            raise InvalidKeys(f"its discovery document was answered with status {status}.")
        document = read_object(body)
        if document.get("issuer") != provider.issuer:
            raise InvalidKeys("its discovery document names another issuer.")
        methods = document.get("token_endpoint_auth_methods_supported")
        return Endpoints(
            provider.issuer,
            self._address(provider, document, "authorization_endpoint"),
            self._address(provider, document, "token_endpoint"),
            self._address(provider, document, "jwks_uri"),
            self._optional(provider, document, "userinfo_endpoint"),
            self._optional(provider, document, "end_session_endpoint"),
            tuple(text for text in methods if isinstance(text, str)) if isinstance(methods, list) else (),
            document.get("authorization_response_iss_parameter_supported") is True,
        )

    def _optional(self, provider: IdentityProvider, document: Mapping[str, Any], name: str) -> str:
        if not document.get(name):
            return ""
        return self._address(provider, document, name)

    def _address(self, provider: IdentityProvider, document: Mapping[str, Any], name: str) -> str:
        """Return an endpoint; it must be an https address, like the issuer."""
        url = document.get(name)
        schemes = ["https"]
        if provider.issuer.startswith("http:") and (provider.trusted or self._allow_http):
            schemes.append("http")
        if not isinstance(url, str) or len(url) > 2000 or url_problem(url, schemes):
            raise InvalidKeys(f"its discovery document has no usable {name}.")
        return url


# The parts of the OpenID client that outlive a request: guarded requests, discovery documents and cached keys.


class ClientParts(Struct, frozen=True):
    """`keys` caches keys of guarded issuers; `trusted_keys` those of each provider of the operator, by its id."""

    requests: ProviderRequests
    discovery: ProviderDiscovery
    keys: IssuerKeys
    trusted_keys: Mapping[str, IssuerKeys]
    clock: Clock


def make_client_parts(
    transport: GuardedTransport,
    store: KeyStore,
    clock: Clock,
    providers: IdentityProviders,
    *,
    timeout_s: float,
    allow_private: bool,
    owner_of: Callable[[IdentityProvider], str],
) -> ClientParts:
    """Return the parts of a worker. `allow_private`: addresses of organizations may be http and private;
    `owner_of` as in ProviderRequests."""
    requests = ProviderRequests(transport, timeout_s, owner_of)
    trusted = {
        provider.id: IssuerKeys(partial(_fetch, requests, provider), store, clock) for provider in providers.configured
    }
    return ClientParts(
        requests,
        ProviderDiscovery(requests, clock, allow_private),
        IssuerKeys(fetch_over(transport), store, clock),
        trusted,
        clock,
    )


def _fetch(requests: ProviderRequests, provider: IdentityProvider, url: str) -> tuple[int, bytes]:
    return requests.send(provider, "GET", url)
