"""The billing identity of a caller: its ids for budgets and usage rows, computed once per caller."""

from msgspec import Struct

from gateway.accounts.authentication import Caller
from gateway.limits.cost_bound import Payer
from gateway.metering.usage_table import raw_id

KEPT = "account"


class BillingIdentity(Struct, frozen=True, eq=False):
    """`ids` are the raw ids of organization, project, key and member, in the order of a usage row's columns. `payer`
    pays with the organization's credits too, `without_credits` without."""

    ids: tuple[bytes, bytes, bytes, bytes]
    payer: Payer
    without_credits: Payer

    @property
    def project(self) -> bytes:
        """The raw id of the project."""
        return self.ids[1]


def billing_identity_of(caller: Caller) -> BillingIdentity:
    """The billing identity of a caller, remembered with it."""
    account = caller.memo.get(KEPT)
    if account is None:
        account = caller.memo[KEPT] = _make(caller)
    return account


def _make(caller: Caller) -> BillingIdentity:
    idents = (
        raw_id(caller.organization_id),
        raw_id(caller.project_id),
        raw_id(caller.key_id),
        raw_id(caller.member_id),
    )
    payers = [
        Payer(caller.key_id, caller.member_id, caller.organization_id, credits, caller.teams)
        for credits in (True, False)
    ]
    return BillingIdentity(idents, *payers)
