"""Setters of spending limits. Only the setter or a higher role may raise a limit; everyone may lower it.

The exact reservation and the thresholds of alerts have setters too: they are part of how strict a limit is.
"""

from typing import Any, NamedTuple

import orjson

from gateway.accounts import organizations
from gateway.accounts.changes import OPERATOR
from gateway.accounts.models import Audit, Member
from gateway.accounts.roles import LIMIT_RANKS
from gateway.errors import Forbidden
from gateway.limits.budgets import Limits
from gateway.limits.models import LIKELY
from gateway.store.database import Database

OF_OPERATOR = 3
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
        return Setter(actor, OF_OPERATOR)
    row = Member.get_or_none(Member.organization == organization_id, Member.user == actor, Member.status == "active")
    if row is not None:
        rank = LIMIT_RANKS[row.role]
    else:
        rank = 0
    if rank == LIMIT_RANKS["owner"] and organization_id == organizations.first_id():
        rank = OF_OPERATOR
    return Setter(actor, rank)


def hold(
    database: Database, organization_id: str, scope_id: str, before: Limits, after: Limits, setter: Setter, action: str
) -> None:
    """Check a change of limits and store its setters, within the transaction of the change.

    `action` is the audit action of such changes. Raises Forbidden (limit_not_yours) if the change raises a limit that
    was set by another person of the same or a higher rank.
    """
    held = _read(database, scope_id)
    if held is None:
        held = _from_trail(organization_id, scope_id, before, action)
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
            raise Forbidden(REFUSALS[part], code="limit_not_yours")
    _write(database, scope_id, held)


def _parts(limits: Limits) -> dict[str, tuple[int, str] | None]:
    if limits.period is None:
        period = None
    else:
        period = (limits.period_nusd or 0, str(limits.period))
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
    setters = [setter for setter in held.values() if setter is not None]
    if value is None or not setters:
        return None
    highest = max(setters, key=lambda setter: setter.rank)
    return LimitSetter(highest.actor, highest.rank, *value)


def _read(database: Database, scope_id: str) -> dict[str, LimitSetter | None] | None:
    row = database.execute("SELECT setters FROM limit_setter WHERE scope_id = ?", (scope_id,)).fetchone()
    if row:
        return {part: LimitSetter(*values) for part, values in orjson.loads(row[0]).items()}
    return None


def _write(database: Database, scope_id: str, held: dict[str, LimitSetter | None]) -> None:
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
