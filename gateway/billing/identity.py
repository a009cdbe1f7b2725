"""The billing identity of a caller: its ids for budgets and usage rows, computed once per caller."""

from msgspec import Struct

from gateway.accounts.authentication import Caller
from gateway.limits.cost_bound import Payer
from gateway.metering.usage_table import raw_id

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
