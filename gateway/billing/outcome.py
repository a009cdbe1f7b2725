"""The outcome of a request: its attempts, the usage and cost of each, and the routing trail shown to the caller."""

from collections.abc import Callable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import NotRequired, TypedDict

from msgspec import Struct, field

from gateway.callers.credential_sources import OWN_SOURCE, CredentialSource
from gateway.catalogue.prices import Charge
from gateway.catalogue.unlisted_entries import PRICED_AS, PROVISIONAL
from gateway.errors import (
    GatewayError,
    StreamTruncated,
    UpstreamFailed,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.limits.rate_limits import RateLimitStatus
from gateway.neutral.request import Request
from gateway.neutral.sound_length import SoundLength
from gateway.neutral.usage import Usage
from gateway.providers.protocol import Target

PAYMENT_REQUIRED = 402
GUARDRAIL_BLOCKED = "guardrail_blocked"  # the end of an attempt whose streamed answer a guardrail blocked
SUPERSEDED = "superseded"  # the error of an attempt when another one of its request answered first
UNFINISHED = ("client_disconnect", GUARDRAIL_BLOCKED, SUPERSEDED, "interrupted")
MAX_ERROR_TEXT = 500  # characters of a provider's error text that are stored
NO_NAMES: Mapping[str, str] = MappingProxyType({})
TRAIL_KEY = "trail"  # key of the cached trail entry in a target's memo


class RoutingAttempt(TypedDict):
    """An entry of the routing trail that responses show."""

    provider: str
    model: str
    status_code: int
    error_type: str
    succeeded: bool
    credentialSource: CredentialSource
    provisionalPriceOf: NotRequired[str]
    region: NotRequired[str]
    providerKeyId: NotRequired[str]
    providerKeyLabel: NotRequired[str]
    apiKeyHash: NotRequired[str]


class Attempt(Struct, eq=False):
    """One upstream call. Times are monotonic seconds; `at_us` is the wall clock at its start.

    `usage` is None until the provider reports it; `used` returns what a stream in progress has reported. `finish` is a
    FinishReason, "error" or one of UNFINISHED. `output_length` is the size of the answer's text so far in bytes, for an
    estimate (for sound, the size of a text with the same number of tokens).
    `overrun`: the true cost exceeded the reservation. `capped`: counts or cost exceeded what is plausible and were
    reduced to that. `asked_tier` is the requested service tier, once the prompt is gone. The settlement sets `charge`,
    and `usage` where it was missing.
    """

    number: int
    target: Target
    at_us: int
    started: float
    head_at: float = 0.0  # when a streamed response began: its headers
    first_at: float = 0.0
    ended: float = 0.0
    status: int = 0
    error: GatewayError | None = None
    usage: Usage | None = None
    charge: Charge = field(default_factory=Charge)
    finish: str = ""
    output_length: int = 0
    sound: SoundLength | None = None  # set when the answer is an audio file
    model: str = ""  # the model that the upstream reports
    upstream_id: str = ""
    service_tier: str = ""
    asked_tier: str = ""
    used: Callable[[], Usage | None] | None = None
    given: tuple[str, ...] = ()  # ids of containers that the provider made for it
    overrun: bool = False
    capped: bool = False
    begun_as: int | None = None  # the number under which it began, if it has another one since (engine/hedging.py)

    @property
    def call_number(self) -> int:
        """The number under which the call began, which names it to the provider and in traces."""
        return self.number if self.begun_as is None else self.begun_as

    @property
    def duration_ms(self) -> int:
        return max(0, round((self.ended - self.started) * 1000))

    @property
    def ttft_ms(self) -> int:
        """Time to the first content in milliseconds, 0 without content."""
        if self.first_at:
            return max(0, round((self.first_at - self.started) * 1000))
        return 0

    @property
    def succeeded(self) -> bool:
        return self.error is None and self.finish not in ("", "error", *UNFINISHED)


class Outcome(Struct, eq=False):
    """All attempts of a request, the serving one last. `requested_provider` is None if the caller named no provider.

    `healing` names the repairs that turned the answer's text into JSON. For a `cached` answer, `origin` is the id of
    the request that produced it, and the single attempt names its provider without being a call. `rate_limits` holds
    the caller's remaining rate limits. For a request with several models, `names` are the caller's names of the models
    by mapping key.
    """

    request: Request
    requested_provider: str | None = None
    attempts: list[Attempt] = []
    warnings: list[str] = []
    cached: bool = False
    healing: tuple[str, ...] = ()
    origin: str = ""
    rate_limits: tuple[RateLimitStatus, ...] = ()
    names: Mapping[str, str] = NO_NAMES

    @property
    def serving(self) -> Attempt:
        return self.attempts[-1]

    @property
    def provider_s(self) -> float:
        """How long providers worked on the request: attempts at the same time count once."""
        total = until = 0.0
        for attempt in sorted(self.attempts, key=attrgetter("started")):
            total += max(0.0, attempt.ended - max(attempt.started, until))
            until = max(until, attempt.ended)
        return total

    def trail(self) -> list[RoutingAttempt]:
        """Return `metadata.routing`: one entry per attempt; [] for a cached answer."""
        if self.cached:
            return []
        return list(map(trail_entry, self.attempts))


def trail_entry(attempt: Attempt) -> RoutingAttempt:
    target = attempt.target
    error = attempt.error
    entry = target.memo.get(TRAIL_KEY)
    if entry is None:
        entry = target.memo[TRAIL_KEY] = _successful_attempt(target)
    entry = entry.copy()
    entry["status_code"] = attempt.status
    if error is not None:
        entry["error_type"] = error_type(error)
        entry["succeeded"] = False
    return entry


def _successful_attempt(target: Target) -> RoutingAttempt:
    """Return the trail entry of a successful attempt at `target`, without its status."""
    mapping = target.mapping
    credential = target.credential
    entry: RoutingAttempt = {
        "provider": target.provider.id,
        "model": mapping.model,
        "status_code": 0,
        "error_type": "none",
        "succeeded": True,
        "credentialSource": credential.source,
    }
    if mapping.price_version == PROVISIONAL:
        entry["provisionalPriceOf"] = mapping.extra[PRICED_AS]
    if mapping.region:
        entry["region"] = mapping.region
    if credential.source == OWN_SOURCE:
        entry["providerKeyId"] = credential.ident
        entry["providerKeyLabel"] = credential.label
    elif credential.ident:
        entry["apiKeyHash"] = credential.ident
    return entry


def upstream_text(error: GatewayError) -> str:
    """Return the provider's error text on one line, shortened and with keys masked; "" if it sent none."""
    text = error.upstream_text or (error.details or {}).get("responseText", "")
    if not text and error.upstream_status and error.blame == "caller":
        text = error.message
    text = " ".join(text.replace("\0", "").split())
    if len(text) <= MAX_ERROR_TEXT:
        return text
    return f"{text[:MAX_ERROR_TEXT]}…"


def error_type(error: GatewayError | None) -> str:
    """Return the name of a failed attempt's error in the routing trail."""
    if error is None:
        return "none"
    if error.code == SUPERSEDED:
        return SUPERSEDED
    if isinstance(error, UpstreamUnreachable | UpstreamTimeout | StreamTruncated):
        return "network_error"
    if isinstance(error, UpstreamRateLimited):
        return "rate_limited"
    if error.upstream_status == PAYMENT_REQUIRED:
        return "insufficient_credits"
    if isinstance(error, UpstreamRefused):
        return "upstream_error"
    if isinstance(error, UpstreamFailed):
        failed = isinstance(error, UpstreamOverloaded) or error.upstream_status >= 500
        if failed:
            return "server_error"
        return "upstream_error"
    return "client_error"
