"""Simulation of a limit over stored usage: which requests of the last days it would have refused."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product

import msgspec
from msgspec import Struct, field

from gateway.callers.models import ApiKey, Project
from gateway.clock import DAY_US
from gateway.limits.limit_book import read_teams
from gateway.limits.limit_rules import (
    APPLICATION,
    MAPPING,
    MAX_MEMBERS,
    MODEL,
    ORGANIZATION,
    PROVIDER,
    PROVIDER_KEY,
    REFUSE,
    RUN,
    SESSION,
    TAG,
    USE_MODEL,
    USER,
    WARN,
    WHOLE,
    LimitRule,
)
from gateway.limits.periods import read_period
from gateway.metering.usage_table import raw_id
from gateway.reports.simulated_days import SimulatedDays, StoredRow, request_of, walk_days
from gateway.runtime.threads import compute
from gateway.store.database import Database
from gateway.store.partitions import time_of

MAX_PEOPLE = 20  # who are named
ROWS = (
    "SELECT request, cost_nusd, api_key, member, project, provider, served, source, session, tags, extra FROM usage "
    "WHERE project = ? AND request >= ? AND request < ? ORDER BY request DESC LIMIT ?"
)
BY_TAGS = (TAG, USER, RUN)
Values = tuple[tuple[str, ...], ...]  # those of each counter that a row charges


class RefusedPerson(Struct, frozen=True):
    """A member, and how many requests of the member's keys would have been refused."""

    member_id: str
    email: str
    requests: int


class LimitSimulation(SimulatedDays):
    """The requests that a limit would have counted in [since_us, until_us), each at its cost, from nothing at the
    start, and those it would have refused, warned about or sent to another model. `people_count` are the owners of
    the keys of refused requests, `people` those with most of them."""

    cost_nusd: int = 0
    refused_requests: int = 0
    refused_cost_nusd: int = 0
    first_refused_at_us: int | None = None
    warned_requests: int = 0
    substituted_requests: int = 0
    people_count: int = 0
    people: list[RefusedPerson] = field(default_factory=list)


def simulate_limit(database: Database, organization_id: str, rule: LimitRule, days: int) -> LimitSimulation:
    """Return what a limit would have done in the last days. Rows are read a few at a time, and examined in a thread."""
    until = database.now_us()
    done = LimitSimulation(until - days * DAY_US, until)
    projects = database.read(partial(_list_projects, organization_id, rule))
    teams = database.read(partial(read_teams, database, organization_id))
    found = _Charges(rule, organization_id, teams)
    for chunk in walk_days(database, ROWS, projects, done):
        if "customer" in found.kinds:
            found.learn_customers(database, chunk)
        compute(found.add, chunk)
    refused = compute(found.replay, done)
    done.people_count = len(refused)
    most = refused.most_common(MAX_PEOPLE)
    emails = database.read(partial(_find_emails, database, [member for member, _ in most]))
    done.people = [RefusedPerson(member, emails.get(member, ""), count) for member, count in most]
    return done


def _list_projects(organization_id: str, rule: LimitRule) -> list[str]:
    """Return the projects in which a request may fall under a limit."""
    query = Project.select(Project.id).where(Project.organization == organization_id)
    for subject in rule.subjects:
        if subject.value and subject.kind == "project":
            query = query.where(Project.id == subject.value)
        if subject.value and subject.kind in ("key", "customer"):
            query = query.where(Project.id.in_(ApiKey.select(ApiKey.project).where(ApiKey.id == subject.value)))
    return [row.id for row in query]


def _find_emails(database: Database, members: Sequence[str]) -> dict[str, str]:
    marks = ", ".join("?" * len(members))
    sql = f'SELECT m.id, u.email FROM member m JOIN "user" u ON u.id = m.user_id WHERE m.id IN ({marks})'
    return dict(database.fetch(sql, members)) if members else {}


class _Charges:
    """The requests that a limit counts, newest first, and their replay from the oldest to the newest."""

    def __init__(self, rule: LimitRule, organization_id: str, teams: Mapping[str, set[str]]) -> None:
        self._rule = rule
        self._organization_id = organization_id
        self._teams = teams
        self._customers: dict[bytes, bool] = {}
        self._known: dict[Values, Values] = {}
        # (request, cost, member, the counters that it charges)
        self._rows: list[tuple[bytes, int, bytes, Values]] = []
        self.kinds = frozenset(subject.kind for subject in rule.subjects)

    def learn_customers(self, database: Database, rows: Sequence[StoredRow]) -> None:
        """Find out which keys of rows are keys of customers."""
        keys = {bytes(row[2]) for row in rows} - self._customers.keys()
        ids = [f"key_{key.hex()}" for key in keys]
        query = ApiKey.select(ApiKey.id).where(ApiKey.id.in_(ids), ApiKey.kind == "customer")
        customers = database.read(lambda: {raw_id(row.id) for row in query})
        self._customers |= {key: key in customers for key in keys}

    def add(self, rows: Sequence[StoredRow]) -> None:
        """Keep the counted parts of rows."""
        for row in rows:
            cost = int(row[1])
            if cost <= 0:
                continue
            facts = self._facts_of(row)
            matches = [subject.matches(facts) for subject in self._rule.subjects]
            if not all(matches):
                continue
            values: Values = tuple(product(*matches))
            values = self._known.setdefault(values, values)
            self._rows.append((request_of(row), cost, bytes(row[3]), values))

    def _facts_of(self, row: StoredRow) -> dict[tuple[str, str], tuple[str, ...]]:
        _, _, key, member, project, provider, served, source, session, tags, extra = row
        kinds = self.kinds
        member_id = f"member_{bytes(member).hex()}"
        key_id = f"key_{bytes(key).hex()}"
        facts: dict[tuple[str, str], tuple[str, ...]] = {
            (ORGANIZATION, ""): (self._organization_id,),
            ("project", ""): (f"proj_{bytes(project).hex()}",),
            ("member", ""): (member_id,),
            ("key", ""): (key_id,),
            (APPLICATION, ""): (source or "",),
            (SESSION, ""): (session or "",),
            (MODEL, ""): (served,),
            (MAPPING, ""): (f"{provider}/{served}",),
            (PROVIDER, ""): (provider,),
        }
        if "team" in kinds:
            facts["team", ""] = tuple(team for team, members in self._teams.items() if member_id in members)
        if "customer" in kinds and self._customers.get(bytes(key)):
            facts["customer", ""] = (key_id,)
        if PROVIDER_KEY in kinds and extra:
            facts[PROVIDER_KEY, ""] = (msgspec.json.decode(extra).get(PROVIDER_KEY, ""),)
        if tags and not kinds.isdisjoint(BY_TAGS):
            metadata = msgspec.json.decode(tags)
            facts[USER, ""] = (metadata.get(USER) or metadata.get("user_id", ""),)
            facts[RUN, ""] = (metadata.get(RUN, ""),)
            for subject in self._rule.subjects:
                if subject.kind == TAG:
                    facts[TAG, subject.name] = (metadata.get(subject.name, ""),)
        return facts

    def replay(self, done: LimitSimulation) -> Counter[str]:
        """Replay the requests under the limit, and return the refused requests of each member."""
        counters = _Counters(self._rule)
        refused: Counter[str] = Counter()
        last = b""
        action = ""
        for request, cost, member, values in reversed(self._rows):
            at = time_of(request)
            if at < done.since_us:
                continue
            charged = [counters.find(value, at) for value in values]
            if request != last:
                last = request
                action = counters.action_of(charged, cost)
                _count(done, action, at)
                refused[f"member_{member.hex()}"] += action == REFUSE
            done.cost_nusd += cost
            if action == REFUSE:
                done.refused_cost_nusd += cost
                continue
            for counter in charged:
                counter.used_nusd += cost
        return +refused


def _count(done: LimitSimulation, action: str, at: int) -> None:
    done.requests += 1
    if action == REFUSE:
        done.refused_requests += 1
        if done.first_refused_at_us is None:
            done.first_refused_at_us = at
    done.substituted_requests += action == USE_MODEL
    done.warned_requests += action == WARN


class _Counter:
    """The used amount of one window."""

    __slots__ = ("end_us", "used_nusd")

    def __init__(self) -> None:
        self.end_us = 0
        self.used_nusd = 0


class _Counters:
    """The counters of a limit and its members."""

    def __init__(self, rule: LimitRule) -> None:
        self._rule = rule
        self._period = read_period(rule.period) if rule.period else None
        shares = sorted(((action.share, action.action) for action in rule.actions), reverse=True)
        self._shares = {action: share for share, action in shares}  # the lowest of each action
        self._members: dict[tuple[str, ...], _Counter] = {}
        self._others = _Counter()

    def find(self, member: tuple[str, ...], at: int) -> _Counter:
        """Return the counter of a member, in the window of a moment."""
        counter = self._members.get(member)
        if counter is None:
            counter = self._others
            if len(self._members) < MAX_MEMBERS:
                counter = self._members[member] = _Counter()
        if self._period is not None and at >= counter.end_us:
            counter.end_us = self._period.end(at)
            counter.used_nusd = 0
        return counter

    def action_of(self, charged: Sequence[_Counter], cost: int) -> str:
        """Return what the limit does with a request of this cost, "" if nothing."""
        used = max(counter.used_nusd for counter in charged)
        limit = self._rule.limit_nusd
        if limit is not None and used + cost > limit:
            return REFUSE
        amount = self._rule.amount_nusd
        share = used * WHOLE // amount if amount else WHOLE
        reached = (action for action in (USE_MODEL, WARN) if share >= self._shares.get(action, WHOLE + 1))
        return next(reached, "")
