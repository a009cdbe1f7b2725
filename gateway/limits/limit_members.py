"""The budgets of limits: inserted with the first request of a member, and removed when no window needs them."""

from collections.abc import Sequence
from typing import NamedTuple

from gateway.limits.limit_rules import MAX_MEMBERS, LimitShare
from gateway.limits.models import LIMIT
from gateway.store.database import Database


class Untracked(NamedTuple):
    """Members that a limit does not count apart, because it counts MAX_MEMBERS already."""

    shares: list[LimitShare]


class OpenedMembers(NamedTuple):
    """How many budgets were inserted, and the members that got none."""

    inserted: int
    untracked: list[LimitShare]


NONE_OPENED = OpenedMembers(0, [])


# Locks the limit, so that a change of it reaches the budgets that are inserted meanwhile.
CLAIM = "UPDATE limits SET members = members + ? WHERE id = ? AND deleted_at IS NULL AND members + ? <= ?"
INSERT = """
INSERT INTO budget (id, scope, scope_id, kind, limit_nusd, settled_nusd, leased_nusd, period, generation, alert_at,
    reservation, limit_id, member)
SELECT ?, ?, ?, ?, l.limit_nusd, 0, 0, l.period, 0, l.alert_at, l.reservation, l.id, ? FROM limits l
WHERE l.id = ? AND l.deleted_at IS NULL ON CONFLICT (id) DO NOTHING
"""
EXISTS = "SELECT 1 FROM limits WHERE id = ? AND deleted_at IS NULL"


def open_members(database: Database, shares: Sequence[LimitShare]) -> OpenedMembers:
    """Insert the missing budgets of limits; return the members that have none because their limits count as many
    members as they may. A limit that was deleted meanwhile gets none. Inside a write, before any budget is locked; a
    request that is refused then takes the insertion back, so that it fills no limit with members."""
    if not shares:
        return NONE_OPENED
    ids = [share.budget for share in shares]
    sql = f"SELECT id FROM budget WHERE id IN ({', '.join('?' * len(ids))})"
    known = {row[0] for row in database.execute(sql, ids).fetchall()}
    missing = sorted((share for share in shares if share.budget not in known), key=_place)
    untracked = [share for share in missing if not _open(database, share)]
    return OpenedMembers(len(missing) - len(untracked), untracked)


def _place(share: LimitShare) -> tuple[str, str]:
    return share.rule.id, share.budget


def _open(database: Database, share: LimitShare) -> bool:
    """Insert a budget; False if its limit counts too many members."""
    rule = share.rule
    more = int(rule.each and not share.shared)
    if not database.execute(CLAIM, (more, rule.id, more, MAX_MEMBERS + 1 - more)).rowcount:
        return database.execute(EXISTS, (rule.id,)).fetchone() is None
    if not insert_share(database, share) and more:
        database.execute("UPDATE limits SET members = members - 1 WHERE id = ?", (rule.id,))
    return True


def insert_share(database: Database, share: LimitShare) -> bool:
    """Insert the budget of a limit; False if it exists. Inside a write."""
    member = share.member.replace("\0", "")  # PostgreSQL stores none
    values = (share.budget, LIMIT, share.scope_id, share.rule.kind, member, share.rule.id)
    return bool(database.execute(INSERT, values).rowcount)
