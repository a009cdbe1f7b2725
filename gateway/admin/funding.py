"""Changes of credits and spending limits: checked, audited and active on every worker on return."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from msgspec import Struct

from gateway import ids, money
from gateway.accounts import audit, organizations, teams
from gateway.accounts.changes import OPERATOR, commit
from gateway.callers.models import Audit, Member
from gateway.callers.permissions import LIMIT_RANKS
from gateway.control.version import Control
from gateway.errors import Conflict, Forbidden, InvalidRequest
from gateway.limits.budgets import Budgets, Limits
from gateway.limits.leases import READ_AT_ONCE, marks
from gateway.limits.ledger import LedgerBook, LedgerKind
from gateway.limits.models import KEY, LIKELY, MEMBER, TEAM, Ledger
from gateway.store.database import Database

# Setters of spending limits. Only the setter or a higher role may raise a limit; everyone may lower it.
#
# The exact reservation and the thresholds of alerts have setters too: they are part of how strict a limit is.

OPERATOR_RANK = 3
TOTAL = "total"
PERIOD = "period"
RESERVATION = "reservation"
ALERTS = "alerts"
PARTS = (TOTAL, PERIOD, RESERVATION, ALERTS)


LOWER_ONLY = (
    "This spending limit was set by another person. You can lower it, but only that person or a higher role can raise "
    "or remove it."
)
REFUSALS = {
    TOTAL: LOWER_ONLY,
    PERIOD: LOWER_ONLY,
    RESERVATION: "Another person set that this limit reserves the highest cost of each request. Only that person or a "
    "higher role can change it.",
    ALERTS: "Another person set the alerts of this limit. You can add thresholds, but only that person or a "
    "higher role can remove them.",
}


class Setter(NamedTuple):
    """A person (user id, or the operator) and the rank of their role in the organization."""

    actor: str
    rank: int


class LimitSetter(NamedTuple):
    """A limit with its setter; `period` is "" for a total. Parts without an amount have their value in `period`: the
    reservation, and the thresholds of alerts with commas."""

    actor: str
    rank: int
    nusd: int
    period: str


def setter_of(actor: str, organization_id: str) -> Setter:
    """Return the setter with the current rank, within a transaction.

    Former members have the lowest rank. Owners of the first organization run the installation and have the highest.
    """
    if actor == OPERATOR:
        return Setter(actor, OPERATOR_RANK)
    row = Member.get_or_none(Member.organization == organization_id, Member.user == actor, Member.status == "active")
    rank = LIMIT_RANKS[row.role] if row is not None else 0
    if rank == LIMIT_RANKS["owner"] and organization_id == organizations.first_id():
        rank = OPERATOR_RANK
    return Setter(actor, rank)


def hold(
    database: Database, organization_id: str, scope_id: str, before: Limits, after: Limits, setter: Setter, action: str
) -> None:
    """Check a change of limits and store its setters, within the transaction of the change.

    `action` is the audit action of such changes. Raises Forbidden (limit_not_yours) if the change raises a limit that
    was set by another person of the same or a higher rank.
    """
    write_setters(
        database,
        scope_id,
        check_held(database, organization_id, scope_id, before, after, setter, action, REFUSALS.__getitem__),
    )


def check_held(
    database: Database,
    organization_id: str,
    scope_id: str,
    before: Limits,
    after: Limits,
    setter: Setter,
    action: str,
    refusal_of: Callable[[str], str],
) -> dict[str, LimitSetter | None]:
    """Return the setters after a change of limits; see `hold`. `refusal_of` returns the text of the error of a part."""
    held = find_setters(database, organization_id, scope_id, before, action)
    old = _parts(before)
    new = _parts(after)
    for part in PARTS:
        if new[part] == old[part]:
            continue
        known = held.get(part) or _assumed(held, old[part])
        limit = new[part]
        if known is None or known.actor == setter.actor or setter.rank > known.rank:
            if limit is None:
                held[part] = None
            else:
                held[part] = LimitSetter(*setter, *limit)
        elif not _within(part, limit, known):
            raise Forbidden(refusal_of(part), code="limit_not_yours")
    return held


def find_setters(
    database: Database, organization_id: str, scope_id: str, limits: Limits, action: str
) -> dict[str, LimitSetter | None]:
    """Return the setters of the present limits; those that are older than the stored ones, from the audit trail."""
    held = read_setters(database, scope_id) or {}
    if held.keys().isdisjoint(PARTS):  # those of a key's status and expiry may be stored before
        held |= _from_trail(organization_id, scope_id, limits, action)
    return held


def _parts(limits: Limits) -> dict[str, tuple[int, str] | None]:
    period = None if limits.period is None else (limits.period_nusd or 0, str(limits.period))
    return {
        TOTAL: None if limits.total_nusd is None else (limits.total_nusd, ""),
        PERIOD: period,
        RESERVATION: None if limits.reservation == LIKELY else (0, limits.reservation),
        ALERTS: (0, ",".join(map(str, limits.alert_at))) if limits.alert_at else None,
    }


def _within(part: str, limit: tuple[int, str] | None, held: LimitSetter) -> bool:
    if limit is None:
        return False
    if part == ALERTS:
        return set(held.period.split(",")) <= set(limit[1].split(","))
    return limit[0] <= held.nusd and limit[1] == held.period


def _assumed(held: dict[str, LimitSetter | None], value: tuple[int, str] | None) -> LimitSetter | None:
    """Return the setter of a part that was set before its setter was stored: the highest of those of the limits."""
    setters = [setter for part, setter in held.items() if setter is not None and part in PARTS]
    if value is None or not setters:
        return None
    highest = max(setters, key=lambda setter: setter.rank)
    return LimitSetter(highest.actor, highest.rank, *value)


def read_setters(database: Database, scope_id: str) -> dict[str, LimitSetter | None] | None:
    """Return the setters of a scope by part: those of limits, and of a key's status and expiry (key_setters)."""
    row = database.execute("SELECT setters FROM limit_setter WHERE scope_id = ?", (scope_id,)).fetchone()
    if row:
        return {part: LimitSetter(*values) for part, values in orjson.loads(row[0]).items()}
    return None


def read_setters_of(database: Database, scope_ids: Sequence[str]) -> dict[str, dict[str, LimitSetter]]:
    """Return the setters of several scopes, by scope and part."""
    found = {}
    for start in range(0, len(scope_ids), READ_AT_ONCE):
        part = scope_ids[start : start + READ_AT_ONCE]
        sql = f"SELECT scope_id, setters FROM limit_setter WHERE scope_id IN ({marks(part)})"
        for scope_id, setters in database.fetch(sql, part):
            found[scope_id] = {name: LimitSetter(*values) for name, values in orjson.loads(setters).items()}
    return found


def write_setters(database: Database, scope_id: str, held: dict[str, LimitSetter | None]) -> None:
    text = orjson.dumps({part: list(setter) for part, setter in held.items() if setter is not None}).decode()
    database.execute(
        "INSERT INTO limit_setter (scope_id, setters) VALUES (?, ?) "
        "ON CONFLICT (scope_id) DO UPDATE SET setters = excluded.setters",
        (scope_id, text),
    )


def _from_trail(organization_id: str, scope_id: str, before: Limits, action: str) -> dict[str, LimitSetter | None]:
    """Return setters from the audit trail, for limits that are older than the table of setters."""
    places = (Audit.organization == organization_id) & (Audit.subject == scope_id) & (Audit.action == action)
    row: Any = Audit.select().where(places).order_by(Audit.seq.desc()).first()
    if row is None:
        return {}
    setter = setter_of(row.actor, organization_id)
    return {part: LimitSetter(*setter, *values) for part, values in _parts(before).items() if values is not None}


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

        `scope` is "key", "member" or "team". Raises InvalidRequest, or Forbidden (see `hold`).
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


def check_within_member(budgets: Budgets, member_id: str, limits: Limits) -> None:
    """Refuse a key's limit above its owner's limit. It could never be reached, so the number would mislead."""
    own = budgets.status(member_id).limits
    pairs = [("usageLimit", limits.total_nusd, own.total_nusd)]
    if limits.period == own.period:
        pairs.append(("periodUsageLimit", limits.period_nusd, own.period_nusd))
    for name, limit, maximum in pairs:
        if limit is not None and maximum is not None and limit > maximum:
            raise InvalidRequest(f"{name} is above the member's own limit of {money.format_usd(maximum)}.", param=name)


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
