"""The rows of `limits` that belong to one key, member, team, provider key or project.

The id of such a limit is that of the budget that counts it (`key_…:total`, `team_…:window`), so that the budget, its
leases and its usage rows are those of an installation without the row. Limits of each session and run have the ids
`key_…:session` and `proj_…:run`; their amounts are in `session_budget`. The row has what these tables have not: the
set amount without a raise, the raise, and the actions. It counts only while its sum is the amount of the budget, since
workers of an earlier release change budgets alone.
"""

import json
from typing import NamedTuple

from msgspec import convert, to_builtins

from gateway.limits.limit_rules import REFUSE, RUN, SESSION, USE_MODEL, WARN, WHOLE, LimitAction, Subject
from gateway.limits.models import KEY, MEMBER, PROVIDER_KEY, TEAM, TOTAL, WINDOW
from gateway.store.database import Database

PROJECT = "project"
MARK = ":"  # in the ids of these limits alone
KIND_OF_PREFIX = {"key": KEY, "member": MEMBER, "team": TEAM, "pkey": PROVIDER_KEY, "proj": PROJECT}
PARTS = {
    KEY: (TOTAL, WINDOW, SESSION, RUN),
    MEMBER: (TOTAL, WINDOW),
    TEAM: (TOTAL, WINDOW),
    PROVIDER_KEY: (TOTAL,),
    PROJECT: (SESSION, RUN),
}
PER_SESSION = {SESSION: "session_nusd", RUN: "run_nusd"}  # part → column of `session_budget`
REFUSES = LimitAction(WHOLE, REFUSE)
ORGANIZATION_OF = {
    KEY: "SELECT p.organization_id FROM api_key x JOIN project p ON p.id = x.project_id WHERE x.id = ?",
    MEMBER: "SELECT organization_id FROM member WHERE id = ?",
    TEAM: "SELECT organization_id FROM team WHERE id = ?",
    PROVIDER_KEY: "SELECT organization_id FROM provider_key WHERE id = ?",
    PROJECT: "SELECT organization_id FROM project WHERE id = ?",
}
ROW = "SELECT amount_nusd, raise_nusd, raise_until, actions FROM limits WHERE id = ? AND limit_nusd = ?"
COLUMNS = (
    "id, organization, name, owner, subjects, amount_nusd, limit_nusd, alert_at, period, actions, acts, reservation, "
    "raise_nusd, raise_until, created_at, updated_at"
)
CHANGED = (
    "amount_nusd",
    "limit_nusd",
    "alert_at",
    "period",
    "actions",
    "acts",
    "reservation",
    "raise_nusd",
    "raise_until",
    "updated_at",
)
KEEP = f"INSERT INTO limits ({COLUMNS}) VALUES ({', '.join('?' * 16)}) ON CONFLICT (id) DO UPDATE SET " + ", ".join(
    f"{column} = excluded.{column}" for column in CHANGED
)


class OwnedName(NamedTuple):
    """The id of such a limit: the kind of its owner, the owner's id, and TOTAL, WINDOW, SESSION or RUN."""

    kind: str
    owner: str
    part: str

    def __str__(self) -> str:
        return f"{self.owner}{MARK}{self.part}"

    @property
    def subjects(self) -> tuple[Subject, ...]:
        """The subjects that the limit would have as one of any subject."""
        of_owner = Subject(self.kind, self.owner)
        return (of_owner, Subject(self.part, each=True)) if self.part in PER_SESSION else (of_owner,)


class OwnedTerms(NamedTuple):
    """The set amount, what is granted beside it until a time, and the actions; alerts belong to the budget."""

    amount_nusd: int
    raise_nusd: int = 0
    raise_until_us: int | None = None
    actions: tuple[LimitAction, ...] = (REFUSES,)

    @property
    def limit_nusd(self) -> int:
        return self.amount_nusd + self.raise_nusd


class BudgetTerms(NamedTuple):
    """The terms of a limit that its budget has, as stored there."""

    period: str = ""
    alert_at: str = ""
    reservation: str = ""


def parse_owned(text: str) -> OwnedName | None:
    """Return the parts of an id; None for the id of another limit."""
    owner, has_mark, part = text.rpartition(MARK)
    kind = KIND_OF_PREFIX.get(owner.partition("_")[0], "")
    if not has_mark or part not in PARTS.get(kind, ()):
        return None
    return OwnedName(kind, owner, part)


def name_owned(owner: str, part: str) -> OwnedName:
    """Return the id of the limit of an owner; the id of the owner has a known prefix."""
    return OwnedName(KIND_OF_PREFIX.get(owner.partition("_")[0], ""), owner, part)


def find_organization(database: Database, name: OwnedName) -> str | None:
    """Return the organization of the owner, None without such an owner; inside a read."""
    row = database.execute(ORGANIZATION_OF[name.kind], (name.owner,)).fetchone() if name.kind else None
    return row[0] if row else None


def read_terms(database: Database, name: OwnedName, limit_nusd: int) -> OwnedTerms:
    """Return the terms of a limit, if its budget has this amount; inside a read."""
    row = database.execute(ROW, (str(name), limit_nusd)).fetchone()
    if row is None:
        return OwnedTerms(limit_nusd)
    return OwnedTerms(int(row[0]), int(row[1]), row[2], read_actions(row[3]))


def read_actions(text: str) -> tuple[LimitAction, ...]:
    """Return the actions of a row."""
    return convert(json.loads(text), tuple[LimitAction, ...])


def keep_terms(database: Database, name: OwnedName, terms: OwnedTerms | None, budget: BudgetTerms) -> None:
    """Store the row of a limit, or remove it with the requests for more (None: there is no limit). Inside a write,
    before the budget is changed, in the order in which other writers lock both."""
    ident = str(name)
    if terms is None:
        database.execute("DELETE FROM limits WHERE id = ?", (ident,))
        database.execute("DELETE FROM limit_request WHERE name = ?", (ident,))
        return
    organization = find_organization(database, name)
    if organization is None:  # the owner was deleted meanwhile
        return
    now = database.now_us()
    database.execute(
        KEEP,
        (
            ident,
            organization,
            ident,
            name.owner,
            json.dumps(to_builtins(name.subjects)),
            terms.amount_nusd,
            terms.limit_nusd,
            budget.alert_at,
            budget.period,
            json.dumps(to_builtins(terms.actions)),
            any(action.action in (WARN, USE_MODEL) for action in terms.actions),
            budget.reservation,
            terms.raise_nusd,
            terms.raise_until_us,
            now,
            now,
        ),
    )


def raise_terms(database: Database, name: OwnedName, nusd: int, until_us: int | None) -> None:
    """Grant `nusd` beside the set amount until a time; 0 ends a raise. Inside a write."""
    known = read_in_force(database, name)
    if known is None:
        keep_terms(database, name, None, BudgetTerms())
        return
    limit_nusd, budget = known
    terms = read_terms(database, name, limit_nusd)._replace(raise_nusd=nusd, raise_until_us=until_us)
    keep_terms(database, name, terms, budget)
    sql = "UPDATE budget SET limit_nusd = ? WHERE id = ?"
    column = PER_SESSION.get(name.part)
    if column:
        sql = f"UPDATE session_budget SET {column} = ? WHERE scope_id = ?"
    database.execute(sql, (terms.limit_nusd, name.owner if column else str(name)))


def keep_actions(database: Database, name: OwnedName, actions: tuple[LimitAction, ...] | None = None) -> None:
    """Store the row of a limit as its budget has it, with other actions if they are given. Inside a write."""
    known = read_in_force(database, name)
    if known is None:
        return
    terms = read_terms(database, name, known[0])
    keep_terms(database, name, terms if actions is None else terms._replace(actions=actions), known[1])


def read_in_force(database: Database, name: OwnedName) -> tuple[int, BudgetTerms] | None:
    """Return the amount in force of a limit, and the terms of its budget; None without a limit. Inside a read."""
    column = PER_SESSION.get(name.part)
    if column:
        sql = f"SELECT {column}, '', '', '' FROM session_budget WHERE scope_id = ?"
    else:
        sql = "SELECT limit_nusd, period, alert_at, reservation FROM budget WHERE id = ?"
    row = database.execute(sql, (name.owner if column else str(name),)).fetchone()
    if row is None or row[0] is None:
        return None
    return int(row[0]), BudgetTerms(row[1] if name.part == WINDOW else "", *row[2:])


def forget_owner(database: Database, owner: str) -> None:
    """Remove the limits of something that is deleted; inside a write."""
    for part in (TOTAL, WINDOW, *PER_SESSION):
        keep_terms(database, name_owned(owner, part), None, BudgetTerms())
