"""The limits of one key, member, team or provider key, and those of each session and run of a key or project, with what
is used of them. owned_rows.py says where they are stored."""

from collections.abc import Iterable, Sequence
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

from gateway.limits.budgets import SPENT, unpack_thresholds
from gateway.limits.leases import marks
from gateway.limits.limit_rules import ALERT, WARN, LimitAction, LimitRule
from gateway.limits.limit_states import MemberState, read_state
from gateway.limits.models import EXACT, KEY, LIKELY, MEMBER, PROVIDER_KEY, TEAM, TOTAL
from gateway.limits.owned_rows import PARTS, PER_SESSION, PROJECT, REFUSES, OwnedName, name_owned, read_actions
from gateway.store.database import Database

# The table of the owners of a kind, those of an organization, and their names.
PLACES = {
    KEY: (
        "api_key x JOIN project p ON p.id = x.project_id",
        "p.organization_id = ? AND x.status <> 'deleted'",
        "x.description",
    ),
    MEMBER: ('member x JOIN "user" u ON u.id = x.user_id', "x.organization_id = ? AND x.status = 'active'", "u.email"),
    TEAM: ("team x", "x.organization_id = ?", "x.name"),
    PROVIDER_KEY: ("provider_key x", "x.organization_id = ? AND x.status <> 'deleted'", "x.label"),
    PROJECT: ("project x", "x.organization_id = ? AND x.status = 'active'", "x.name"),
}
BUDGETS = (
    "SELECT x.id, {name}, x.created_at, b.limit_nusd, y.raise_nusd, y.raise_until, y.actions, {spent}, "
    "b.settled_nusd + b.leased_nusd, b.period, b.window_start, b.alert_at, b.reservation "
    "FROM {table} JOIN budget b ON b.id = x.id || ':{part}' "
    "LEFT JOIN limits y ON y.id = b.id AND y.limit_nusd = b.limit_nusd WHERE {place} AND b.limit_nusd IS NOT NULL "
)
SESSIONS = (
    "SELECT x.id, {name}, x.created_at, s.{part}_nusd, y.raise_nusd, y.raise_until, y.actions, 0, 0, '', NULL, '', '' "
    "FROM {table} JOIN session_budget s ON s.scope_id = x.id "
    "LEFT JOIN limits y ON y.id = x.id || ':{part}' AND y.limit_nusd = s.{part}_nusd "
    "WHERE {place} AND s.{part}_nusd IS NOT NULL "
)
USED = "AND b.settled_nusd + b.leased_nusd >= b.limit_nusd / 100 * {percent} "
AFTER = "AND x.id || ':{part}' > ? ORDER BY x.id || ':{part}' LIMIT ?"
ONE = "AND x.id = ?"


class OwnedLimit(NamedTuple):
    """A limit with its owner. `id` is its id, `name` the name of its owner; counting began at `created_us`."""

    id: str
    name: OwnedName
    owner_name: str
    rule: LimitRule
    state: MemberState
    raise_nusd: int
    raise_until_us: int | None
    created_us: int


def list_owned(
    database: Database, organization_id: str, kinds: Iterable[str], after: str, maximum: int, used_percent: int = 0
) -> list[OwnedLimit]:
    """Return the limits of owners of these kinds with ids after `after`, by id. With `used_percent`, all are among them
    of which so much is used or held, and none of a session. Inside a read."""
    now = database.now_us()
    values = (organization_id, after, maximum)
    end = USED.format(percent=used_percent) + AFTER if used_percent else AFTER
    found = []
    for kind in PARTS.keys() & set(kinds):
        for part in PARTS[kind]:
            if used_percent and part in PER_SESSION:
                continue
            rows = database.fetch(_select(kind, part, end), values)
            found.append([_read(kind, part, row, now) for row in rows])
    return list(islice(merge(*found, key=attrgetter("id")), maximum))


def list_of_owners(database: Database, organization_id: str, owners: Iterable[str]) -> list[OwnedLimit]:
    """Return the limits of these owners in an organization, by id. Inside a read."""
    now = database.now_us()
    by_kind: dict[str, list[str]] = {}
    for owner in owners:
        by_kind.setdefault(name_owned(owner, TOTAL).kind, []).append(owner)
    found = []
    for kind, ids in by_kind.items():
        for part in PARTS.get(kind, ()):
            rows = database.fetch(_select(kind, part, f"AND x.id IN ({marks(ids)})"), (organization_id, *ids))
            found += [_read(kind, part, row, now) for row in rows]
    return sorted(found, key=attrgetter("id"))


def find_owned(database: Database, organization_id: str, name: OwnedName) -> OwnedLimit | None:
    """Return a limit, None without one. Inside a read."""
    rows = database.fetch(_select(name.kind, name.part, ONE), (organization_id, name.owner))
    return _read(name.kind, name.part, rows[0], database.now_us()) if rows else None


def _select(kind: str, part: str, end: str) -> str:
    table, place, name = PLACES[kind]
    sql = (SESSIONS if part in PER_SESSION else BUDGETS) + end
    return sql.format(name=name, spent=SPENT, table=table, place=place, part=part)


def _read(kind: str, part: str, row: Sequence[Any], now: int) -> OwnedLimit:
    owner, owner_name, created, limit_nusd, raised, until, actions, spent, whole, *terms = row
    period, start, alert_at, reservation = terms
    name = OwnedName(kind, owner, part)
    own = (REFUSES,) if actions is None else read_actions(actions)
    warned = {action.share for action in own if action.action == WARN}
    alerts = [LimitAction(share, ALERT) for share in unpack_thresholds(alert_at) if share not in warned]
    usual = EXACT if kind == PROVIDER_KEY else LIKELY
    ident = str(name)
    period = "" if part == TOTAL else period
    rule = LimitRule(ident, ident, name.subjects, int(limit_nusd), period, (*alerts, *own), reservation or usual)
    state = read_state(("", int(limit_nusd), spent, whole, period, start), now)
    return OwnedLimit(ident, name, owner_name or "", rule, state, int(raised or 0), until, created)
