"""The limits outside the table `limits`: those of keys, members, teams and provider keys, and of each
session and run of a key or project."""

from collections.abc import Iterable
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

from gateway.limits.budgets import SPENT, unpack_thresholds
from gateway.limits.limit_rules import REFUSE, RUN, SESSION, WARN, WHOLE, LimitAction, LimitRule, Subject
from gateway.limits.limit_states import MemberState, read_state
from gateway.limits.models import EXACT, KEY, LIKELY, MEMBER, PROVIDER_KEY, TEAM, TOTAL, WINDOW
from gateway.store.database import Database

PROJECT = "project"
# Where the limits of a kind are stored: the table of its subjects in an organization, and their name.
PLACES = {
    KEY: (
        "api_key x JOIN project p ON p.id = x.project_id",
        "p.organization_id = ? AND x.status <> 'deleted'",
        "x.description",
    ),
    MEMBER: ('member x JOIN "user" u ON u.id = x.user_id', "x.organization_id = ? AND x.status = 'active'", "u.email"),
    TEAM: ("team x", "x.organization_id = ?", "x.name"),
    PROVIDER_KEY: ("provider_key x", "x.organization_id = ? AND x.status <> 'deleted'", "x.label"),
}
PER_SESSION = {
    KEY: PLACES[KEY],
    PROJECT: ("project x", "x.organization_id = ? AND x.status = 'active'", "x.name"),
}
BUDGETS = (
    "SELECT b.id, x.id, {name}, b.limit_nusd, {spent}, b.settled_nusd + b.leased_nusd, b.period, b.window_start, "
    "b.alert_at, b.reservation FROM {table} JOIN budget b ON b.id = x.id || ':{kind}' "
    "WHERE {place} AND b.limit_nusd IS NOT NULL AND b.id > ? ORDER BY b.id LIMIT ?"
)
SESSIONS = (
    "SELECT x.id, {name}, s.{column} FROM {table} JOIN session_budget s ON s.scope_id = x.id "
    "WHERE {place} AND s.{column} IS NOT NULL AND x.id || ':{kind}' > ? ORDER BY x.id LIMIT ?"
)


class OtherLimit(NamedTuple):
    """A limit that is changed with its key, member, team, provider key or project. `id` is that of its budget."""

    id: str
    kind: str
    scope_id: str
    name: str
    rule: LimitRule
    state: MemberState


def list_other_limits(
    database: Database, organization_id: str, kinds: Iterable[str], after: str, maximum: int
) -> list[OtherLimit]:
    """Return such limits of things of these kinds with ids after `after`, by id. Inside a read."""
    kinds = set(kinds)
    values = (organization_id, after, maximum)
    now = database.now_us()
    found: list[Iterable[OtherLimit]] = []
    for kind in PLACES.keys() & kinds:
        table, place, name = PLACES[kind]
        for budget_kind in (TOTAL, WINDOW):
            sql = BUDGETS.format(name=name, spent=SPENT, table=table, place=place, kind=budget_kind)
            found.append([_read_budget(kind, row, now) for row in database.fetch(sql, values)])
    for kind in PER_SESSION.keys() & kinds:
        table, place, name = PER_SESSION[kind]
        for each, column in ((SESSION, "session_nusd"), (RUN, "run_nusd")):
            sql = SESSIONS.format(name=name, column=column, table=table, place=place, kind=each)
            found.append([_read_session(kind, each, row) for row in database.fetch(sql, values)])
    return list(islice(merge(*found, key=attrgetter("id")), maximum))


def _read_budget(kind: str, row: tuple[Any, ...], now: int) -> OtherLimit:
    ident, scope_id, name, limit_nusd, spent, whole, period, start, alert_at, reservation = row
    actions = [LimitAction(share, WARN) for share in unpack_thresholds(alert_at)]
    usual = EXACT if kind == PROVIDER_KEY else LIKELY
    rule = LimitRule(
        ident,
        ident,
        (Subject(kind, scope_id),),
        int(limit_nusd),
        period,
        (*actions, LimitAction(WHOLE, REFUSE)),
        reservation or usual,
    )
    state = read_state(("", int(limit_nusd), spent, whole, period, start), now)
    return OtherLimit(ident, kind, scope_id, name or "", rule, state)


def _read_session(kind: str, each: str, row: tuple[Any, ...]) -> OtherLimit:
    scope_id, name, nusd = row
    ident = f"{scope_id}:{each}"
    subjects = (Subject(kind, scope_id), Subject(each, each=True))
    rule = LimitRule(ident, ident, subjects, int(nusd), "", (LimitAction(WHOLE, REFUSE),), LIKELY)
    return OtherLimit(ident, kind, scope_id, name or "", rule, MemberState("", int(nusd), 0, 0))
