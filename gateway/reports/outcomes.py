"""Outcomes of coding agents beside what they cost: by day, and by team, project, repository, model, person, key or
session.

`cost` is all spending of a row, as `/activity` has it. `agent_cost` is the part of it by the keys from which agents
reported something in the period: the outcomes have their price from it, since other keys do other work.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from gateway.accounts.keys import KeyInfo
from gateway.metering.activity import NAMES, Owners, Span, TagValues, measure, measure_top
from gateway.metering.figures import ActivityFigures
from gateway.metering.outcomes.outcome_sums import OutcomeFigures, OutcomeRow, list_repositories, sum_outcomes
from gateway.metering.rollups.queries import Row, at_once
from gateway.metering.rollups.rollup_table import SESSION
from gateway.store.database import Database

GROUPS = ("team", "project", "repository", "model", "person", "key", "session")
# Groups that lead to single people.
PERSONAL = ("person", "key", "session")
MAX_REPOSITORY_SESSIONS = 4_000  # whose cost is that of a repository: those with the most accepted edits
MAX_SESSIONS = 200  # in a report: the most expensive, and those with the most accepted edits
FIGURES = ("cost_nusd", "requests")


class OutcomeSum(Struct):
    """The outcomes of one value or day, and what was spent; `id` "" is all that has no value."""

    id: str
    outcomes: OutcomeFigures = field(default_factory=OutcomeFigures)
    cost_nusd: int = 0
    agent_cost_nusd: int = 0
    requests: int = 0

    def cost_per(self, outcome: str) -> int | None:
        """Return what one of an outcome cost, in whole nano-dollars; None without any."""
        count = getattr(self.outcomes, outcome)
        return self.agent_cost_nusd // count if count else None

    def add_spend(self, figures: ActivityFigures) -> None:
        self.cost_nusd += figures.cost_nusd
        self.requests += figures.requests


class OutcomeQuestion(Struct, frozen=True):
    """The usage to report, over a span by day or hour. `keys` are all keys of the owners, `teams` the ids of the teams
    of each member."""

    owners: Owners
    span: Span
    group: str
    keys: Mapping[str, KeyInfo]
    teams: Mapping[str, Sequence[str]]


class OutcomeReport(Struct):
    """The sums of a period. A person in several teams counts in each of them."""

    total: OutcomeSum
    steps: dict[int, OutcomeSum]
    groups: list[OutcomeSum]


def read_report(database: Database, question: OutcomeQuestion) -> OutcomeReport:
    """Return the outcomes and the spending of a period. Unavailable."""
    span = question.span
    whole = Span(span.first, span.end, "all")
    by_key = database.view(lambda: sum_outcomes(database, question.owners, whole, "api_key"))
    by_step = database.view(lambda: sum_outcomes(database, question.owners, span, "total"))
    agents = Owners(key_ids=tuple(sorted(row.value for row in by_key)))

    def measure_spend() -> tuple[list[Row], list[Row]]:
        return (
            measure(database, question.owners, span, "total", FIGURES),
            measure(database, agents, span, "total", FIGURES),
        )

    steps: dict[int, OutcomeSum] = {}
    spent, by_agents = at_once(database, measure_spend)
    for row in spent:
        steps.setdefault(row.step, OutcomeSum("")).add_spend(row.figures)
    for row in by_agents:
        steps.setdefault(row.step, OutcomeSum("")).agent_cost_nusd += row.figures.cost_nusd
    for reported in by_step:
        steps.setdefault(reported.step, OutcomeSum("")).outcomes.add(reported.figures)
    total = OutcomeSum("")
    for step in steps.values():
        _add(total, step)
    return OutcomeReport(total, steps, _read_groups(database, question, whole, agents, by_key))


def _add(total: OutcomeSum, part: OutcomeSum) -> None:
    total.outcomes.add(part.outcomes)
    total.cost_nusd += part.cost_nusd
    total.agent_cost_nusd += part.agent_cost_nusd
    total.requests += part.requests


def _read_groups(
    database: Database, question: OutcomeQuestion, span: Span, agents: Owners, by_key: Sequence[OutcomeRow]
) -> list[OutcomeSum]:
    if not question.group:
        return []
    if question.group == "session":
        sums = _sessions(database, question.owners, span)
    elif question.group == "repository":
        sums = _repositories(database, question.owners, span)
    elif question.group == "model":
        sums = _models(database, question.owners, span, agents)
    else:
        sums = _by_owner(database, question, span, by_key)
    return sorted(sums, key=lambda one: (-one.cost_nusd, one.id))


def _by_owner(
    database: Database, question: OutcomeQuestion, span: Span, by_key: Sequence[OutcomeRow]
) -> list[OutcomeSum]:
    """Return the sums of what keys belong to."""
    keys = question.keys
    reported = {row.value: row.figures for row in by_key}
    owners = Owners(key_ids=tuple(keys))
    sums: dict[str, OutcomeSum] = {}
    spent = at_once(database, lambda: measure(database, owners, span, "api_key", FIGURES))
    costs = {f"key_{row.value[0].hex()}": row.figures for row in spent}
    for key_id in costs.keys() | reported.keys():
        key = keys.get(key_id)
        for value in _values_of(question, key_id, key):
            one = sums.setdefault(value, OutcomeSum(value))
            if key_id in costs:
                one.add_spend(costs[key_id])
            if key_id in reported:
                one.outcomes.add(reported[key_id])
                one.agent_cost_nusd += costs[key_id].cost_nusd if key_id in costs else 0
    return list(sums.values())


def _values_of(question: OutcomeQuestion, key_id: str, key: KeyInfo | None) -> Iterable[str]:
    if question.group == "key":
        return (key_id,)
    if key is None:
        return ("",)
    if question.group == "project":
        return (key.project_id,)
    if question.group == "person":
        return (key.member_id,)
    return question.teams.get(key.member_id) or ("",)


def _sessions(database: Database, owners: Owners, span: Span) -> list[OutcomeSum]:
    """Return the sessions that cost most, and those that brought most, and one sum of everything else. A session has
    what it cost as agent cost."""
    reported = {
        row.value: row.figures for row in database.view(lambda: sum_outcomes(database, owners, span, "session"))
    }
    best = sorted(reported, key=lambda name: (-reported[name].edits_accepted, -reported[name].commits, name))

    def measure_spend() -> tuple[list[Row], list[Row]]:
        tops = measure_top(database, owners, span, SESSION, FIGURES, MAX_SESSIONS)
        known = {row.value[0] for row in tops}
        rest = tuple(name for name in best[:MAX_SESSIONS] if name and name not in known)
        if rest:
            tops += measure(database, owners, span, "tag", FIGURES, TagValues(SESSION, rest))
        return tops, measure(database, owners, span, "total", FIGURES)

    sums: dict[str, OutcomeSum] = {}
    tops, everything = at_once(database, measure_spend)
    for row in tops:
        one = sums.setdefault(row.value[0], OutcomeSum(row.value[0]))
        one.add_spend(row.figures)
        one.agent_cost_nusd += row.figures.cost_nusd
    for name in {*best[:MAX_SESSIONS], *sums} & reported.keys():
        sums.setdefault(name, OutcomeSum(name)).outcomes.add(reported[name])
    rest = sums.pop("", OutcomeSum(""))
    rest.cost_nusd = sum(row.figures.cost_nusd for row in everything) - sum(one.cost_nusd for one in sums.values())
    rest.requests = sum(row.figures.requests for row in everything) - sum(one.requests for one in sums.values())
    rest.outcomes = OutcomeFigures()
    for name in reported.keys() - sums.keys():
        rest.outcomes.add(reported[name])
    if rest.requests or rest.cost_nusd or rest.outcomes != OutcomeFigures():
        sums[""] = rest
    return list(sums.values())


def _repositories(database: Database, owners: Owners, span: Span) -> list[OutcomeSum]:
    """Return the repositories, and one sum of everything else. A repository has the cost of the sessions that named
    it."""
    reported = database.view(lambda: sum_outcomes(database, owners, span, "repository"))
    repositories = database.view(lambda: list_repositories(database, owners, span, MAX_REPOSITORY_SESSIONS))
    sessions = tuple(repositories)

    def measure_spend() -> tuple[list[Row], list[Row]]:
        rows: list[Row] = []
        for start in range(0, len(sessions), NAMES):
            some = TagValues(SESSION, sessions[start : start + NAMES])
            rows += measure(database, owners, span, "tag", FIGURES, some)
        return rows, measure(database, owners, span, "total", FIGURES)

    spent, everything = at_once(database, measure_spend)
    sums = {row.value: OutcomeSum(row.value, row.figures) for row in reported}
    for row in spent:
        name = repositories[row.value[0]]
        one = sums.setdefault(name, OutcomeSum(name))
        one.add_spend(row.figures)
        one.agent_cost_nusd += row.figures.cost_nusd
    rest = sums.setdefault("", OutcomeSum(""))
    rest.cost_nusd = sum(row.figures.cost_nusd for row in everything) - sum(one.cost_nusd for one in sums.values())
    rest.requests = sum(row.figures.requests for row in everything) - sum(one.requests for one in sums.values())
    if not (rest.requests or rest.cost_nusd or rest.outcomes != OutcomeFigures()):
        del sums[""]
    return list(sums.values())


def _models(database: Database, owners: Owners, span: Span, agents: Owners) -> list[OutcomeSum]:
    """Return the models by name, whatever provider served them; agents name theirs with or without a provider."""

    def measure_spend() -> tuple[list[Row], list[Row]]:
        return (
            measure(database, owners, span, "model", FIGURES),
            measure(database, agents, span, "model", FIGURES),
        )

    sums: dict[str, OutcomeSum] = {}
    spent, by_agents = at_once(database, measure_spend)
    for row in spent:
        sums.setdefault(row.value[0], OutcomeSum(row.value[0])).add_spend(row.figures)
    for row in by_agents:
        sums.setdefault(row.value[0], OutcomeSum(row.value[0])).agent_cost_nusd += row.figures.cost_nusd
    for reported in database.view(lambda: sum_outcomes(database, owners, span, "model")):
        name = reported.value.rpartition("/")[2]
        sums.setdefault(name, OutcomeSum(name)).outcomes.add(reported.figures)
    return list(sums.values())
