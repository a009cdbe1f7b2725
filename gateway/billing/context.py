"""The context of a request: caller, time, headers and options, everything but its body; and the facts for settlement
that all attempts of the request share."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

import orjson
from msgspec import Struct, field

from gateway.billing.outcome import Outcome
from gateway.billing.retained_payload import PayloadCapture
from gateway.billing.unit_estimates import BYTES_PER_TOKEN
from gateway.callers.authentication import Caller
from gateway.limits.cost_bound import CostBound, Payer
from gateway.limits.limit_rules import LimitRule, LimitSet
from gateway.limits.spending import Spending
from gateway.limits.worker_leases import Reservation
from gateway.metering.models import STREAMED
from gateway.metering.usage_table import raw_id
from gateway.neutral.hosted_uses import NO_USES, HostedUse
from gateway.neutral.request import Request
from gateway.neutral.usage import Units
from gateway.routes.choices import RouteChoice
from gateway.store.journal import Ticket

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
    (batch_reservation.py). `paced`: it counts in rate limits; `retains`: its payload is retained for a fee."""

    paced: ClassVar[bool]
    retains: ClassVar[bool]

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
    is_check: bool = False  # a guardrail asks a classifier model, and no guardrail applies
    trace: Trace | None = None
    adapt: Adapt | None = None  # changes an answer for clients that expect other members than most
    payload: PayloadCapture | None = None  # set when the project retains payloads
    job: CreatedJob | None = None  # set when the request creates a job

    # Facts from headers, completed from the body (surfaces/web/attribution.py).

    session: str = ""  # the session of an agent, as `session_ids` stores it
    end_user: str = ""  # the person whom the caller serves, as a limit counts it
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
    noted: bool = False  # headers of the answer tell of a limit or a route
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
