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


class RequestContext(Struct, eq=False):
    """One request of a caller.

    `request_id` is the accounting id: 32 hex digits that the gateway generates. `label` is the caller's x-request-id
    (at most 64 characters); it is echoed but never used as a key. `started` and `deadline` are monotonic seconds.
    `payload` is set when the project retains payloads, `job` when the request creates a job, `request` once the body
    was parsed, `outcome` once the request was admitted, and `own_s` (seconds that the gateway itself took) once it was
    answered. `choice` are members of the request's options that headers set: further models to try, preferences among
    providers. `session` is the session of an agent, as `session_ids`
    stores it; `session_nusd` and `run_nusd` are the budgets that headers set for it and for its run, None without.
    `decision` is the request that stored the routing decision, None for this one.
    `attribution` is None unless usage rows have a label, a session or metadata. `settles_early`: the answer is
    prepared while its settlement is written; `record` is the ticket of that settlement, for which the surface waits
    before it sends the answer. `adapt` changes an answer for clients that expect other members than most.
    `end_user` is the person whom the caller serves, as a limit counts it; `limits` are those of the organization
    that apply, `limit_note` says which of them act without refusing. `headers` are those that the caller sent (names
    in lower case); `route` is the choice that a route made for it, `routed` the request for the models of that choice
    while these are planned. `noted`: headers of the answer tell of a limit or a route. `is_check`: a guardrail asks a
    classifier model, and no guardrail applies.
    """

    request_id: str
    caller: Caller
    at_us: int
    started: float
    deadline: float
    label: str = ""
    source: str = ""
    session: str = ""
    ip: str = ""
    operation: str = "chat"
    surface: str = "openai"
    no_fallback: bool = False
    no_cache: bool = False
    debug: bool = False
    metadata: dict[str, str] = field(default_factory=dict)
    idempotency_key: str = ""
    payload: PayloadCapture | None = None
    job: CreatedJob | None = None
    trace: Trace | None = None
    request: Request | None = None
    outcome: Outcome | None = None
    own_s: float = 0.0
    choice: dict[str, Any] | None = None
    attribution: Attribution | None = None
    session_nusd: int | None = None
    run_nusd: int | None = None
    settles_early: bool = False
    record: Ticket | None = None
    decision: bytes | None = None
    adapt: Adapt | None = None
    guard: "Guard | None" = None
    end_user: str = ""
    limits: ChargedLimits | None = None
    limit_note: str = ""
    headers: Mapping[str, str] = {}
    route: RouteChoice | None = None
    routed: Request | None = None
    noted: bool = False
    is_check: bool = False

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
