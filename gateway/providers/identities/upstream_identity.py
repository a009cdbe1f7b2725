"""The tokens of workload identities: the calls for them, and a cache that renews them ahead of their expiry, with one
token for each identity and worker.

A target of such a credential has no secret: `upstream_calls.signed_in` returns it with the current token.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from typing import Protocol as Interface
from urllib.parse import quote

import orjson
from msgspec import Struct

from gateway.catalogue.entries import IDENTITIES
from gateway.clock import SECOND_US, Clock
from gateway.configuration.setting_checks import url_problem
from gateway.errors import GatewayError, IdentityFailed
from gateway.providers.protocol import Credential, Target, UpstreamReply
from gateway.runtime.call_merging import SharedCalls
from gateway.runtime.state_changes import INFO, StateChange, StateLog
from gateway.runtime.threads import spawn
from gateway.transport import Transport
from gateway.transport.upstream_responses import Answer

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

    def fetch_secret(self) -> str:
        """Return the current token; waits if there is none. IdentityFailed."""
        token = self._token
        if token is None or self._clock.monotonic() >= self._until:
            token = self._wait()
        return token.secret

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


def secret_of(credential: Credential) -> str:
    """Return the credential's secret, or the current token of its workload identity."""
    if credential.identity is None:
        return credential.secret
    return credential.identity.secret


# HTTP calls and files of workload identities.
#
# The operator's environment and files name the addresses, which may be private: metadata servers are on link-local
# addresses. Nothing of a request or of an organization reaches this module.

CALL_TIMEOUT_S = 5.0  # a metadata server answers within milliseconds, a token service within a second
ANSWER_LIMIT = 256 * 1024
FILE_LIMIT = 256 * 1024
FORM_HEADERS = {"content-type": "application/x-www-form-urlencoded"}
# Error codes of OAuth (RFC 6749), Entra and AWS. Other texts may quote a token.
CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{2,63}")
NAMES = ("error", "Code", "code", "status")


class IdentityCalls(Struct, frozen=True):
    """The network and the clock of token sources."""

    transport: Transport
    clock: Clock

    def call(self, place: str, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
        """Return the answer of a call, whatever its status. `place` names the server in errors. IdentityFailed."""
        if url_problem(url, ("https", "http")):
            raise IdentityFailed(f"The address of the {place} is invalid.")
        try:
            return self.transport.request(
                method, url, headers, body, timeout_s=CALL_TIMEOUT_S, max_bytes=ANSWER_LIMIT, trusted=True
            )
        except GatewayError:
            raise IdentityFailed(f"The {place} did not answer.") from None

    def fetch(self, place: str, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> dict[str, Any]:
        """Return the JSON object of a 200 answer. IdentityFailed."""
        answer = self.call(place, method, url, headers, body)
        if answer.status != 200:
            raise refusal(place, answer)
        return read_object(place, answer.body)

    def seconds_until(self, place: str, moment: object) -> float:
        """Return the seconds until a time in ISO 8601, or in seconds since 1970. IdentityFailed."""
        try:
            if isinstance(moment, int | float) or (str(moment).isascii() and str(moment).isdigit()):
                at = float(str(moment))
            else:
                at = _read_time(str(moment))
        except ValueError:
            raise IdentityFailed(f"The {place} returned an invalid expiry.") from None
        return at - self.clock.now_us() / SECOND_US


def refusal(place: str, answer: Answer) -> IdentityFailed:
    """Return the error for an answer that is no token: its status and its error code."""
    try:
        code = _code_in(orjson.loads(answer.body))
    except orjson.JSONDecodeError:
        code = ""
    return refused(place, answer.status, code)


def refused(place: str, status: int, code: str) -> IdentityFailed:
    """Return the error for a refusal with a code of the server ("": none)."""
    more = f" {code}" if CODE.fullmatch(code) else ""
    return IdentityFailed(f"The {place} answered {status}{more}.")


def read_object(place: str, body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body. IdentityFailed."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise IdentityFailed(f"The {place} did not return a JSON object.")
    return value


def text_of(place: str, answer: Answer, name: str) -> str:
    """Return the text that is the body of a 200 answer. `name` is what the text is, for errors. IdentityFailed."""
    if answer.status != 200:
        raise refusal(place, answer)
    return text_in(place, {name: answer.body.decode("utf-8", "replace").strip()}, name)


def text_in(place: str, value: Mapping[str, Any], name: str) -> str:
    """Return a text that an answer must have. IdentityFailed."""
    text = value.get(name)
    if not isinstance(text, str) or not text or not text.isascii() or not text.isprintable():
        raise IdentityFailed(f"The {place} returned no {name}.")
    return text


def seconds_in(place: str, value: Mapping[str, Any], name: str) -> float:
    """Return a number of seconds that an answer must have, as a number or as text. IdentityFailed."""
    try:
        seconds = float(value[name])
    except (KeyError, TypeError, ValueError):
        seconds = math.nan
    if not math.isfinite(seconds):
        raise IdentityFailed(f"The {place} returned no {name}.")
    return seconds


def read_file(name: str, path: str) -> str:
    """Return the stripped content of a file. `name` is what names the file, such as a variable. IdentityFailed.

    It is read each time, because the host replaces the file before its token expires.
    """
    try:
        with Path(path).open("rb") as file:
            text = file.read(FILE_LIMIT + 1).decode().strip()
    except (OSError, UnicodeDecodeError, ValueError):
        raise IdentityFailed(f"The file of {name} cannot be read.") from None
    if not text or len(text) > FILE_LIMIT:
        raise IdentityFailed(f"The file of {name} is {'too long' if text else 'empty'}.")
    return text


def read_token_file(name: str, path: str) -> str:
    """Return a token from a file: one line without control characters. IdentityFailed."""
    token = read_file(name, path)
    if not token.isascii() or not token.isprintable():
        raise IdentityFailed(f"The file of {name} does not hold a token.")
    return token


def _code_in(body: Any) -> str:
    """Return the error code of a JSON body, "" for none: {"error": code}, {"error": {"status": code}}, {"Code": code}.

    A numeric code of Entra has the form AADSTS700016, which its documentation lists.
    """
    if not isinstance(body, dict):
        return ""
    numbers = body.get("error_codes")
    if isinstance(numbers, list) and numbers and isinstance(numbers[0], int):
        return f"AADSTS{numbers[0]}"
    for name in NAMES:
        value = body.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, dict):
            return _code_in(value)
    return ""


def _read_time(text: str) -> float:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()
