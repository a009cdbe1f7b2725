"""The cache of the tokens of workload identities: one token for each identity and worker, renewed ahead of its expiry.

A target of such a credential has no secret. `signed_in` returns the target with the current token, which requests use.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol as Interface
from urllib.parse import quote

from msgspec import Struct

from gateway.catalogue.protocols import IDENTITIES
from gateway.clock import SECOND_US, Clock
from gateway.errors import IdentityFailed
from gateway.providers.protocol import Credential, Target, UpstreamReply
from gateway.runtime.call_merging import SharedCalls
from gateway.runtime.state_changes import INFO, StateChange, StateLog
from gateway.runtime.threads import spawn

# A token is renewed this long before its expiry, or in the last third of its lifetime. Metadata servers have a new one
# at least five minutes before the old one expires, and return the old one until then.
RENEW_BEFORE_S = 600.0
EXPIRY_MARGIN_S = 30.0  # before its expiry a token is not sent any more, since the provider's clock may be ahead
RENEWAL_INTERVAL_S = 30.0  # between two renewals while the token is still valid, and after a provider rejected one
FIRST_RETRY_S = 1.0  # after a failure without a valid token; doubles with each failure
MAX_RETRY_S = 60.0
SIGNED_IN = "signed in"  # key in `Target.memo`
FAILING = "workload_identity.failing"
WORKS = "workload_identity.works"
REMEDY = "check the service account, role or managed identity of the gateway's host; docs/workload-identity.md"


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A short-lived credential. `source` says where it comes from, for operators.

    `settings` are settings of the provider that were discovered, such as the project. `headers` are sent with it.
    """

    secret: str = field(repr=False)
    lifetime_s: float
    source: str
    settings: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


class TokenSource(Interface):
    """How the tokens of one vendor are obtained.

    `settings` names the settings of a provider that decide which token it gets. `auth` is how a provider takes the
    token (`Provider.auth`; "": as its entry says).
    """

    settings: tuple[str, ...]
    auth: str

    def fetch(self, settings: Mapping[str, str]) -> IssuedToken:
        """Return a new token. Blocks. IdentityFailed."""
        ...

    def is_rejected(self, reply: UpstreamReply) -> bool:
        """Return whether the provider rejected the token, so that another one may work."""
        ...


class IdentityState(Struct, frozen=True):
    """The state of an identity as operators see it: its kind, the source of its token, the expiry (µs, 0: no token)
    and the error of the last attempt ("": none)."""

    kind: str
    source: str
    expires_us: int
    failure: str


class UpstreamIdentity:
    """The token of one identity. A request waits for it only when there is no valid one, and then for one fetch."""

    def __init__(
        self, kind: str, source: TokenSource, settings: Mapping[str, str], clock: Clock, states: StateLog
    ) -> None:
        self._kind = kind
        self._source = source
        self._discovers = IDENTITIES[kind]
        self._settings = settings
        self._clock = clock
        self._states = states
        self._fetches: SharedCalls[str, IssuedToken] = SharedCalls()
        self._token: IssuedToken | None = None
        self._until = 0.0  # monotonic, like the next three
        self._renew_at = 0.0
        self._retry_at = 0.0
        self._replace_at = 0.0
        self._expires_us = 0
        self._renewing = False
        self._failures = 0
        self._failure: IdentityFailed | None = None

    @property
    def name(self) -> str:
        """The kind with the settings that tell identities of this kind apart; the same in every process."""
        return ":".join((self._kind, *(f"{name}={value}" for name, value in sorted(self._settings.items()))))

    @property
    def secret(self) -> str:
        """The current token, "" for none."""
        return self._token.secret if self._token else ""

    def state(self) -> IdentityState:
        token = self._token
        failure = self._failure.message if self._failure else ""
        if token is None or self._clock.monotonic() >= self._until:
            return IdentityState(self._kind, token.source if token else "", 0, failure)
        return IdentityState(self._kind, token.source, self._expires_us, failure)

    def describe(self) -> tuple[str, int, str]:
        state = self.state()
        return state.source, state.expires_us, state.failure

    def complete(self, settings: dict[str, str]) -> dict[str, str]:
        """Return the settings with a placeholder for each one that the token will bring, as in "{project}"."""
        missing = {name: f"{{{name}}}" for name in self._discovers if not settings.get(name)}
        return settings | missing

    def sign_in(self, target: Target) -> Target:
        """Return the target with the current token; waits if there is none. IdentityFailed."""
        token = self._token
        if token is None or self._clock.monotonic() >= self._until:
            token = self._wait()
        return self._with(target, token)

    def renew_rejected(self, target: Target, reply: UpstreamReply) -> Target | None:
        """Return the target with a newer token after the provider rejected that of `target`; None where the provider
        did not reject the token, or there is no other one."""
        if not self._source.is_rejected(reply):
            return None
        rejected = target.credential.secret
        now = self._clock.monotonic()
        if rejected == self.secret and now >= self._replace_at:
            self._replace_at = now + RENEWAL_INTERVAL_S
            try:
                self._fetch()
            except IdentityFailed:
                return None
        token = self._token
        if token is None or token.secret == rejected:
            return None
        return self._with(target, token)

    def maintain(self) -> None:
        """Renew the token in the background if it is time; returns at once."""
        now = self._clock.monotonic()
        if now >= self._renew_at and now >= self._retry_at and not self._renewing:
            self._renewing = True
            spawn(self._renew)

    def _renew(self) -> None:
        try:
            self._fetch()
        except IdentityFailed:
            return  # it is in the state, and requests get it once the token has expired
        finally:
            self._renewing = False

    def _wait(self) -> IssuedToken:
        # Without this, each request during an outage would wait for its own failure.
        if self._failure is not None and self._clock.monotonic() < self._retry_at:
            raise IdentityFailed(self._failure.message)
        return self._fetch()

    def _fetch(self) -> IssuedToken:
        """Fetch a token, once for all callers at a time. IdentityFailed."""
        return self._fetches.run("", self._fetch_alone)

    def _fetch_alone(self) -> IssuedToken:
        started = self._clock.monotonic()
        try:
            token = self._source.fetch(self._settings)
            if token.lifetime_s <= EXPIRY_MARGIN_S:
                raise IdentityFailed(f"The token of the {token.source} has expired.")
        except IdentityFailed as error:
            self._fail(error)
            raise
        self._token = token
        self._until = started + token.lifetime_s - EXPIRY_MARGIN_S
        self._renew_at = started + token.lifetime_s - min(RENEW_BEFORE_S, token.lifetime_s / 3)
        self._retry_at = self._clock.monotonic() + RENEWAL_INTERVAL_S
        self._expires_us = self._clock.now_us() + int(token.lifetime_s * SECOND_US)
        self._failures = 0
        self._failure = None
        self._states.resolve(StateChange(WORKS, self.name, f"The workload identity {self.name} works.", INFO))
        return token

    def _fail(self, error: IdentityFailed) -> None:
        now = self._clock.monotonic()
        wait_s = RENEWAL_INTERVAL_S
        if now >= self._until:
            wait_s = min(FIRST_RETRY_S * 2.0 ** min(self._failures, 8), MAX_RETRY_S)
        self._failures += 1
        self._failure = error
        self._retry_at = now + wait_s
        message = f"The workload identity {self.name} got no token: {error.message}"
        self._states.fire(StateChange(FAILING, self.name, message, remedy=REMEDY))

    def _with(self, target: Target, token: IssuedToken) -> Target:
        """Return the target with the token. It is kept in the target, so its own memo lives as long as the token."""
        known = target.memo.get(SIGNED_IN)
        if known is not None and known[0] is token:
            signed: Target = known[1]
            return signed
        provider = replace(target.provider, auth=self._source.auth or target.provider.auth)
        if token.headers:
            provider = replace(provider, headers={**provider.headers, **token.headers})
        signed = replace(
            target,
            provider=provider,
            credential=replace(target.credential, secret=token.secret),
            address=self._fill(target.address, token),
            settings={**target.settings, **token.settings},
            memo={},
        )
        target.memo[SIGNED_IN] = token, signed
        return signed

    def _fill(self, address: str, token: IssuedToken) -> str:
        for name in self._discovers:
            place = f"{{{name}}}"
            if place in address:
                value = token.settings.get(name, "")
                if not value:
                    raise IdentityFailed(f"The {token.source} does not say the {name}: set it for the provider.")
                address = address.replace(place, quote(value, safe=":"))
        return address


class UpstreamIdentities:
    """The identities of this worker. Providers with the same source and settings share one."""

    def __init__(self, sources: Mapping[str, TokenSource], clock: Clock, states: StateLog) -> None:
        self._sources = sources
        self._clock = clock
        self._states = states
        self._identities: dict[tuple[str, tuple[tuple[str, str], ...]], UpstreamIdentity] = {}

    def find(self, kind: str, settings: Mapping[str, str]) -> UpstreamIdentity:
        """Return the identity of a kind for a provider with these settings."""
        source = self._sources[kind]
        chosen = {name: settings[name] for name in source.settings if settings.get(name)}
        key = kind, tuple(sorted(chosen.items()))
        identity = self._identities.get(key)
        if identity is None:
            identity = UpstreamIdentity(kind, source, chosen, self._clock, self._states)
            self._identities[key] = identity
        return identity

    def maintain(self) -> None:
        """Renew the tokens for which it is time, in the background. Called every few seconds."""
        for identity in list(self._identities.values()):
            identity.maintain()


def signed_in(target: Target) -> Target:
    """Return the target with a token, if its credential is a workload identity. IdentityFailed."""
    identity = target.credential.identity
    if identity is None:
        return target
    return identity.sign_in(target)


def signed_in_again(target: Target, reply: UpstreamReply) -> Target | None:
    """Return the target with another token after the provider rejected that of `target`; None without another one."""
    identity = target.credential.identity
    if identity is None:
        return None
    return identity.renew_rejected(target, reply)


def secret_of(credential: Credential) -> str:
    """Return the credential's secret, or the current token of its workload identity."""
    if credential.identity is None:
        return credential.secret
    return credential.identity.secret
