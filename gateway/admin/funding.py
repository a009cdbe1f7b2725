"""Changes of credits and spending limits: checked, audited and active on every worker on return."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from gateway import ids, money
from gateway.accounts import audit, organizations, teams
from gateway.accounts.changes import commit
from gateway.admin.limit_setters import hold, setter_of
from gateway.control.version import Control
from gateway.errors import Conflict, InvalidRequest
from gateway.limits.budgets import Budgets, Limits
from gateway.limits.ledger import LedgerBook, LedgerKind
from gateway.limits.models import KEY, MEMBER, TEAM, Ledger
from gateway.store.database import Database

LimitEdit = Callable[[Limits], Limits]
AUDITED = {KEY: "api_key.update_limit", MEMBER: "member.update_limit", TEAM: "team.update_limit"}


class Posting(Struct, frozen=True):
    """An entry for the ledger. `reference` makes it idempotent; with "" each call adds an entry."""

    kind: LedgerKind
    amount_nusd: int
    note: str = ""
    reference: str = ""


def _check_same(posting: Posting, ref: str) -> None:
    """Raise Conflict if the reference was posted with another amount, which would otherwise be lost."""
    there = Ledger.get(Ledger.kind == posting.kind, Ledger.ref == ref).amount_nusd
    if there != posting.amount_nusd:
        usd = money.format_usd(there)
        raise Conflict(
            f"This reference was used for {usd} USD. Use another reference for another amount.", code="reference_taken"
        )


class Funding:
    """Changes credits and limits. `budgets` and `ledger` may also be used for reading."""

    def __init__(self, database: Database, control: Control) -> None:
        self._database = database
        self._control = control
        self.budgets = Budgets(database, control)
        self.ledger = LedgerBook(database, control)

    def post_credits(self, organization_id: str, posting: Posting, *, actor: str) -> bool:
        """Post credits. Return False if the reference was posted before.

        Raises InvalidRequest for a zero amount, or a negative one that is not an adjustment; Conflict for a reference
        that was used with another amount; NotFound.
        """
        if posting.amount_nusd == 0 or (posting.amount_nusd < 0 and posting.kind != "adjustment"):
            raise InvalidRequest("The amount must be positive; only an adjustment may be negative.", param="amount")
        ref = f"api:{organization_id}:{posting.reference or ids.new_hex()}"

        def work(now: int) -> bool:
            organizations.load_organization(organization_id)
            posted = self.ledger.post(organization_id, posting.kind, posting.amount_nusd, ref, posting.note)
            if not posted:
                _check_same(posting, ref)
            else:
                usd = money.format_usd(posting.amount_nusd)
                detail = {"amount_usd": usd, "kind": posting.kind, "note": posting.note}
                _audit("credits.post", organization_id, organization_id, detail, actor, now)
            return posted

        return commit(self._database, self._control, work)

    def set_unlimited(self, organization_id: str, unlimited: bool, *, actor: str) -> None:
        """Set whether an organization may spend without credits. Spending limits still apply. Raises NotFound."""

        def work(now: int) -> None:
            organizations.load_organization(organization_id)
            self.ledger.set_unlimited(organization_id, unlimited)
            _audit("credits.unlimited", organization_id, organization_id, {"unlimited": unlimited}, actor, now)

        commit(self._database, self._control, work)

    def set_limits(self, scope: str, scope_id: str, organization_id: str, edit: LimitEdit, *, actor: str) -> None:
        """Change the limits of a key, member or team to the result of `edit`, in one transaction.

        `scope` is "key", "member" or "team". Raises InvalidRequest, or Forbidden (see `limit_setters.hold`).
        """

        commit(
            self._database,
            self._control,
            lambda now: self.write_limits(scope, scope_id, organization_id, edit, setter=actor, actor=actor, now=now),
        )

    def write_limits(
        self, scope: str, scope_id: str, organization_id: str, edit: LimitEdit, *, setter: str, actor: str, now: int
    ) -> None:
        """The part of `set_limits` that runs within a transaction. The rank of `setter` decides."""
        before = self.budgets.status(scope_id).limits
        limits = edit(before)
        rank = setter_of(setter, organization_id)
        hold(self._database, organization_id, scope_id, before, limits, rank, AUDITED[scope])
        self.budgets.write_limits(scope, scope_id, limits)
        if scope == TEAM:
            teams.mark_limited(organization_id, scope_id, limits != Limits())
        _audit(AUDITED[scope], scope_id, organization_id, show_limits(limits), actor, now)


def _audit(action: str, subject: str, organization_id: str, detail: Mapping[str, object], actor: str, now: int) -> None:
    audit.append(action, subject, actor=actor, at_us=now, organization_id=organization_id, detail=detail)


def show_limits(limits: Limits) -> dict[str, object]:
    """Return the limits for the audit log: amounts as decimal strings in US dollars, None for no limit."""

    def usd(amount: int | None) -> str | None:
        if amount is None:
            return None
        return money.format_usd(amount)

    return {
        "usage_limit_usd": usd(limits.total_nusd),
        "period_limit_usd": usd(limits.period_nusd),
        "period": str(limits.period) if limits.period else None,
        "alert_at": list(limits.alert_at),
        "reservation": limits.reservation,
    }
