"""What the books know of a caller: worked out once, since a caller makes many requests."""

from msgspec import Struct

from gateway.accounts.authentication import Caller
from gateway.limits.asks import Payer
from gateway.metering.recorder import raw_id

KEPT = "account"


class Account(Struct, frozen=True, eq=False):
    """`ids` are the raw ids of organization, project, key and member, in the order of a usage row's columns. `payer`
    pays with the organization's credits too, `thrifty` without."""

    ids: tuple[bytes, bytes, bytes, bytes]
    payer: Payer
    thrifty: Payer

    @property
    def project(self) -> bytes:
        """The raw id of the project."""
        return self.ids[1]


def account_of(caller: Caller) -> Account:
    """The account of a caller, kept with it."""
    account = caller.kept.get(KEPT)
    if account is None:
        account = caller.kept[KEPT] = _make(caller)
    return account


def _make(caller: Caller) -> Account:
    idents = (caller.organization_id, caller.project_id, caller.key_id, caller.member_id)
    payers = [
        Payer(caller.key_id, caller.member_id, caller.organization_id, credits, caller.teams)
        for credits in (True, False)
    ]
    return Account(tuple(map(raw_id, idents)), *payers)
