"""A request from its arrival to its settlement: its context (caller, time, headers and options, everything but its
body), its outcome, and the facts that all its attempts share."""

from collections.abc import Callable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any, ClassVar, NotRequired, Protocol, TypedDict

import orjson
from msgspec import Struct, field

from gateway.billing.retained_payload import PayloadCapture
from gateway.billing.unit_estimates import BYTES_PER_TOKEN
from gateway.callers.authentication import Caller
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
from gateway.limits.cost_bound import CostBound, Payer
from gateway.limits.limit_rules import LimitRule, LimitSet
from gateway.limits.rate_limits import RateLimitStatus
from gateway.limits.spending import Spending
from gateway.limits.worker_leases import Reservation
from gateway.metering.models import STREAMED
from gateway.metering.usage_table import raw_id
from gateway.neutral.hosted_uses import NO_USES, HostedUse
from gateway.neutral.request import Request
from gateway.neutral.sound_length import SoundLength
from gateway.neutral.usage import Units, Usage
from gateway.providers.protocol import Target
from gateway.routes.choices import RouteChoice
from gateway.store.journal import Ticket

# The outcome of a request: its attempts, the usage and cost of each, and the routing trail shown to the caller.

PAYMENT_REQUIRED = 402
GUARDRAIL_BLOCKED = "guardrail_blocked"  # the end of an attempt: a guardrail blocked its streamed answer
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
    preparing: bool = False  # its files are uploaded, and its request is not sent yet
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


# The context of a request.

MODELS_HEADER = "x-llmgateway-models"
PROVIDER_HEADER = "x-llmgateway-provider"
Adapt = Callable[[Any], None]


class Attribution(Struct, frozen=True):
    """The data of a request in its usage rows beside its caller: the session of an agent, the metadata as a JSON
    object of strings, and the choice of a route. Each is None for a request without it."""

    session: str | None
    tags: str | None
    route: RouteChoice | None = None


class Trace(Protocol):
    """Interface of the trace that a request belongs to, for operators that collect traces (telemetry/otel)."""

    def listener(self, number: int, inner: Any) -> Any: ...


class ChargedLimits(Protocol):
    """Interface of the limits that a request falls under (request_limits.py): its payers with them, and the limits that
    depend on its target."""

    @property
    def payer(self) -> Payer: ...

    @property
    def without_credits(self) -> Payer: ...

    @property
    def calls(self) -> tuple[LimitRule, ...]: ...

    def of_call(self, target: Any) -> LimitSet: ...


class Guard(Protocol):
    """Interface of the guardrails that are in force for a request (engine/guarding.py)."""

    findings: Any
    blocked: Any  # the error by which a rule ended a streamed answer; None without one

    def answer(self, result: Any) -> Any: ...
    def stream(self, batches: Any) -> Any: ...


class CreatedJob(Protocol):
    """Interface of the job that a request creates (job_reservation.py), or of the line of a batch that it is
    (batch_reservation.py). `paced`: it counts in rate limits; `retains`: its payload is retained for a fee;
    `asks_checkers`: the outside checkers of guardrails read it, which may cost money, `asks_judges`: so do the models
    that judge its difficulty for a route."""

    paced: ClassVar[bool]
    retains: ClassVar[bool]
    asks_checkers: ClassVar[bool]
    asks_judges: ClassVar[bool]

    def reserve(self, spending: Spending, payer: Payer, cost_bound: CostBound) -> Reservation: ...


class HeaderOptions(Struct, frozen=True):
    """Options of the gateway that headers of a request set."""

    no_fallback: bool = False
    no_cache: bool = False
    debug: bool = False
    # Members of the request's options: further models to try, preferences among providers.
    choice: Mapping[str, Any] = {}
    # The budgets in nano-dollars of the agent's session and of its run, None without.
    session_nusd: int | None = None
    run_nusd: int | None = None


NO_HEADER_OPTIONS = HeaderOptions()


class RequestContext(Struct, eq=False):
    """One request of a caller: the facts with which it came, and its state until it is answered."""

    # Facts about the request, set before its body is read.

    request_id: str  # the accounting id: 32 hex digits that the gateway generates
    caller: Caller
    at_us: int
    started: float  # monotonic seconds, as `deadline`
    deadline: float
    label: str = ""  # the caller's x-request-id, at most 64 characters; echoed, but never used as a key
    source: str = ""
    ip: str = ""
    operation: str = "chat"
    surface: str = "openai"
    headers: Mapping[str, str] = {}  # as the caller sent them, names in lower case
    options: HeaderOptions = NO_HEADER_OPTIONS
    is_check: bool = False  # the request of a guardrail to a classifier model; no guardrail applies to it
    trace: Trace | None = None
    adapt: Adapt | None = None  # changes an answer for clients that expect other members than most
    payload: PayloadCapture | None = None  # set when the project retains payloads
    job: CreatedJob | None = None  # set when the request creates a job

    # Facts from headers, completed from the body (surfaces/web/attribution.py).

    session: str = ""  # the session of an agent, as `session_ids` stores it
    end_user: str = ""  # the caller's end user, as limits count it
    metadata: dict[str, str] = field(default_factory=dict)
    attribution: Attribution | None = None  # None unless usage rows have a label, a session, metadata or a route

    # State of the engine.

    request: Request | None = None  # set once the body was parsed
    outcome: Outcome | None = None  # set once the request was admitted
    guard: "Guard | None" = None
    limits: ChargedLimits | None = None  # the limits of the organization that apply
    limit_note: str = ""  # says which of `limits` act without refusing
    route: RouteChoice | None = None  # the choice that a route made
    routed: Request | None = None  # the request for the models of `route`, while these are planned
    noted: bool = False  # headers of the answer report the model that served, a limit or a route
    decision: bytes | None = None  # the request that stored the routing decision, None for this one
    settles_early: bool = False  # the answer is prepared while its settlement is written
    record: Ticket | None = None  # of that settlement, for which the surface waits before it sends the answer
    own_s: float = 0.0  # seconds that the gateway itself took, set once the request was answered

    def attribute(self) -> None:
        """Compute `attribution`, after label, session or metadata were set."""
        tags = orjson.dumps(self.metadata).decode() if self.metadata else None
        self.attribution = Attribution(self.session or None, tags, self.route)

    @property
    def shown_id(self) -> str:
        """The id that the caller sees: the caller's label if there is one, otherwise `request_id`."""
        return self.label or self.request_id


# The billing identity of a caller: its ids for budgets and usage rows, computed once per caller.

ACCOUNT_KEY = "account"


class BillingIdentity(Struct, frozen=True, eq=False):
    """Ids of a caller for billing. `ids` are the raw ids of organization, project, key and member, in the order of a
    usage row's columns, `project` the project's alone. `payer` includes the organization's credits, `without_credits`
    does not."""

    ids: tuple[bytes, bytes, bytes, bytes]
    payer: Payer
    without_credits: Payer
    project: bytes


def billing_identity_of(caller: Caller) -> BillingIdentity:
    """Return the billing identity of a caller; it is cached in the caller."""
    identity = caller.memo.get(ACCOUNT_KEY)
    if identity is None:
        identity = caller.memo[ACCOUNT_KEY] = _make(caller)
    return identity


def _make(caller: Caller) -> BillingIdentity:
    idents = (
        raw_id(caller.organization_id),
        raw_id(caller.project_id),
        raw_id(caller.key_id),
        raw_id(caller.member_id),
    )
    payer = Payer(caller.key_id, caller.member_id, caller.organization_id, True, caller.teams)
    return BillingIdentity(idents, payer, payer._replace(credits=False), idents[1])


class Terms(Struct, frozen=True, eq=False):
    """Facts that all attempts of a request share. `flags` are the flags of its rows; `prompt_tokens` is the estimated
    count of its prompt with media; `requested_model` is the model as the caller wrote it,
    `hosted_uses` what it uses beside that model."""

    context: RequestContext
    billing_identity: BillingIdentity
    request: bytes
    prompt_bytes: int
    prompt_tokens: int
    requested_model: str
    flags: int
    units: Units | None = None
    hosted_uses: tuple[HostedUse, ...] = NO_USES

    @property
    def input_tokens(self) -> int:
        """The estimated tokens of everything that a provider reads, as rate limits count them."""
        if self.units is None:
            return self.prompt_tokens
        return self.prompt_tokens + self.units.likely.input_total


def terms_of(context: RequestContext, request: Request) -> Terms:
    """Return the terms of a request."""
    requirements = request.requirements
    prompt_bytes = requirements.prompt_bytes
    return Terms(
        context,
        billing_identity_of(context.caller),
        bytes.fromhex(context.request_id),
        prompt_bytes,
        requirements.likely_media_tokens - (-prompt_bytes // BYTES_PER_TOKEN),
        request.requested_model,
        STREAMED if requirements.stream else 0,
        requirements.units,
        requirements.hosted_uses,
    )
