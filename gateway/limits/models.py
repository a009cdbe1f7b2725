"""The tables of budgets, leases, the ledger and rate limits."""

from collections.abc import Iterable

import peewee

from gateway.store.database import Base, NanoField, TimeField

KEY = "key"
MEMBER = "member"
TEAM = "team"
ORGANIZATION = "organization"
SESSION = "session"  # a session of an agent in a project
RUN = "run"  # a run of several agents in a project
LIMIT = "limit"  # the budgets of rows of `limits`
PROVIDER_KEY = "provider_key"  # an organization's own key at a provider: it has a total limit, but no window
LIKELY_SCOPES = frozenset((KEY, MEMBER, TEAM, SESSION, RUN, LIMIT))  # of budgets that reserve likely costs by default
EXACT = "exact"
LIKELY = "likely"
TOTAL = "total"
WINDOW = "window"
CREDITS = "credits"
TEAM_PREFIX = f"{TEAM}_"
LIMIT_PREFIX = "lim_"
# Prefixes of ids of budgets that several keys share.
GROUPS = (TEAM_PREFIX, f"{SESSION}_", f"{RUN}_", LIMIT_PREFIX)
NO_WORKER = 0  # the `worker` of leases that belong to a hold; no epoch is 0


class Budget(Base):
    """A limit and its counters; `id` is budget_id(scope_id, kind). Rows exist without a limit too.

    `settled_nusd + leased_nusd <= limit_nusd` except for overruns. `leased_nusd` is the sum of the grants of leases of
    the same `generation`; a window's generation rises each time it restarts, which invalidates older leases.
    `reservation` is EXACT, LIKELY or "" for the default of the scope. `limit_id` is the row of `limits` that a budget
    belongs to, `member` the one that it counts of a limit for each, `past_nusd` what its earlier windows counted.
    """

    id = peewee.CharField(64, primary_key=True)
    scope = peewee.CharField(16)
    scope_id = peewee.CharField(40)
    kind = peewee.CharField(16)
    limit_nusd = NanoField(null=True)
    settled_nusd = NanoField(default=0)
    leased_nusd = NanoField(default=0)
    period = peewee.CharField(64, default="")
    window_start = TimeField(null=True)
    generation = peewee.BigIntegerField(default=0)
    alert_at = peewee.CharField(40, default="")  # percentages of the limit, joined by commas
    reservation = peewee.CharField(8, default="")
    begun_at = TimeField(null=True)  # when a session or run was first charged
    limit_id = peewee.CharField(40, default="")
    member = peewee.CharField(600, default="")
    past_nusd = NanoField(default=0)


class LimitRow(Base):
    """A limit of an organization (limit_rules.LimitRule): `subjects` and `actions` are JSON. `limit_nusd` is the amount
    at which requests are refused, null: never. `members` counts the budgets of a limit for each. `raise_nusd` is
    granted beside `amount_nusd` until `raise_until`. A deleted row stays until its budgets are removed. `owner` is the
    key, member, team, provider key or project that the limit belongs to (owned_rows.py), "" for one of any subject;
    `acts`: such a limit warns or uses another model."""

    id = peewee.CharField(64, primary_key=True)
    organization = peewee.CharField(40)
    name = peewee.CharField(64)
    subjects = peewee.TextField()
    amount_nusd = NanoField()
    limit_nusd = NanoField(null=True)
    alert_at = peewee.CharField(40, default="")
    alert_from = peewee.IntegerField(null=True)  # the lowest of alert_at
    period = peewee.CharField(64, default="")
    actions = peewee.TextField(default="[]")
    reservation = peewee.CharField(8, default="")
    values_of = peewee.CharField(16, default="request")
    members = peewee.BigIntegerField(default=0)
    owner = peewee.CharField(40, default="")
    acts = peewee.BooleanField(default=False)
    top_budget = peewee.CharField(64, default="")  # of the member that used most lately, if there are many
    raise_nusd = NanoField(default=0)
    raise_until = TimeField(null=True)
    created_at = TimeField()
    updated_at = TimeField()
    deleted_at = TimeField(null=True)

    class Meta:
        table_name = "limits"


class LimitRequest(Base):
    """A request of a member (`user_id`) for `amount_nusd` more of the limit `name` of an organization until a time."""

    id = peewee.CharField(40, primary_key=True)
    organization = peewee.CharField(40)
    name = peewee.CharField(64)
    user_id = peewee.CharField(40)
    amount_nusd = NanoField()
    until = TimeField()
    note = peewee.CharField(255, default="")
    created_at = TimeField()

    class Meta:
        table_name = "limit_request"


class Lease(Base):
    """A worker's share of a budget: granted − spent is left of it. `worker` is the owner's epoch.

    `spent_nusd` is what was settled since the last fold into the budget. A lease with `returned_at` was returned on
    behalf of a lost worker; what that worker may still settle is charged to the budget at the next fold. Leases of a
    `hold` have no worker and end with it.
    """

    id = peewee.BigIntegerField(primary_key=True)
    budget = peewee.CharField(64)
    worker = peewee.BigIntegerField()
    generation = peewee.BigIntegerField()
    granted_nusd = NanoField()
    spent_nusd = NanoField()
    taken_at = TimeField()
    returned_at = TimeField(null=True)
    hold = peewee.CharField(64, null=True)


class HoldRow(Base):
    """A reservation for a job or a session; `id` is the job's."""

    id = peewee.CharField(64, primary_key=True)
    organization = peewee.CharField(40)
    amount_nusd = NanoField()
    output_cap = peewee.BigIntegerField(null=True)
    placed_at = TimeField()

    class Meta:
        table_name = "hold"


class Ledger(Base):
    """Append-only (a trigger refuses anything else). Unique on (kind, ref)."""

    id = peewee.CharField(40, primary_key=True)
    organization = peewee.CharField(40)
    kind = peewee.CharField(16)
    amount_nusd = NanoField()
    ref = peewee.CharField(255)
    at = TimeField()
    note = peewee.CharField(255, default="")


class RateLimit(Base):
    """A limit of `amount` requests or tokens per minute, or concurrent requests. `scope_id` "*" sets it for each
    subject of the scope."""

    scope = peewee.CharField(16)
    scope_id = peewee.CharField(255)
    kind = peewee.CharField(16)
    amount = peewee.BigIntegerField()

    class Meta:
        table_name = "rate_limit"
        primary_key = peewee.CompositeKey("scope", "scope_id", "kind")


def budget_id(scope_id: str, kind: str) -> str:
    return f"{scope_id}:{kind}"


def split_groups(budgets: Iterable[str]) -> tuple[bytes | None, tuple[str, ...]]:
    """Return the teams that have totals among these budgets, as a usage row has them (None: no team), and the ids of
    the sessions, runs and rows of `limits`."""
    groups = [group for budget in budgets if (group := group_of(budget))]
    teams = sorted(bytes.fromhex(group[len(TEAM_PREFIX) :]) for group in groups if group.startswith(TEAM_PREFIX))
    return b"".join(teams) or None, tuple(group for group in groups if not group.startswith(TEAM_PREFIX))


def group_of(budget: str) -> str:
    """Return the id of a team, session or run if this budget is its total, or that of a row of `limits`; "" for every
    other budget."""
    scope_id, _, kind = budget.rpartition(":")
    if scope_id.startswith(LIMIT_PREFIX) or (kind == TOTAL and scope_id.startswith(GROUPS)):
        return scope_id
    return ""
