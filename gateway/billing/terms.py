"""Facts for settlement that all attempts of a request share."""

from msgspec import Struct

from gateway.billing.context import RequestContext
from gateway.billing.unit_estimates import BYTES_PER_TOKEN
from gateway.callers.authentication import Caller
from gateway.limits.cost_bound import Payer
from gateway.metering.models import STREAMED
from gateway.metering.usage_table import raw_id
from gateway.neutral.hosted_uses import NO_USES, HostedUse
from gateway.neutral.request import Request
from gateway.neutral.usage import Units

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
