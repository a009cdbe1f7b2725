"""Outcomes of coding agents beside what they cost: by day, and by team, project, repository, model, person, key or
session.

`cost` is all spending of a row, as `/activity` has it. `agent_cost` is the part of it by the keys from which agents
reported something in the period: the outcomes have their price from it, since other keys do other work.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from gateway.accounts.keys import KeyInfo
from gateway.metering.activity import NAMES, Owners, Span, TagValues, measure, measure_top
from gateway.metering.figures import ActivityFigures
from gateway.metering.outcomes.outcome_sums import (
    KeySession,
    OutcomeDimension,
    OutcomeFigures,
    OutcomeRow,
    list_reporters,
    list_repositories,
    sum_outcomes,
)
from gateway.metering.rollups.queries import Row, at_once
from gateway.metering.rollups.rollup_table import SESSION
from gateway.store.database import Database

GROUPS = ("team", "project", "repository", "model", "person", "key", "session")
# Groups that lead to single people.
PERSONAL = ("person", "key", "session")
# Groups by what keys reported, and their dimension.
REPORTED: dict[str, OutcomeDimension] = {"repository": "repository", "model": "model"}
# Where people are not compared, figures of others are of at least so many of them.
MIN_PEOPLE = 3
FEW_PEOPLE = "(few people)"
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
    of each member. `hidden` are the members of whom none may be seen alone."""

    owners: Owners
    span: Span
    group: str
    keys: Mapping[str, KeyInfo]
    teams: Mapping[str, Sequence[str]]
    hidden: frozenset[str] = frozenset()

    def hidden_people(self, key_ids: Iterable[str]) -> frozenset[str]:
        """Return those owners of keys that may not be shown alone."""
        return frozenset(self.keys[ident].member_id for ident in key_ids if ident in self.keys) & self.hidden


class People(NamedTuple):
    """The people of some figures who may not be seen alone: those who reported something, and all, with those who have
    a key that works."""

    reporting: frozenset[str]
    all: frozenset[str]

    @property
    def are_few(self) -> bool:
        """Return whether the figures tell what one of them did."""
        return bool(self.reporting) and len(self.all) < MIN_PEOPLE


NOBODY = People(frozenset(), frozenset())


class OutcomeReport(Struct):
    """The sums of a period. A person in several teams counts in each of them. `is_of_few`: they tell what one person
    did who may not be seen alone."""

    total: OutcomeSum
    steps: dict[int, OutcomeSum]
    groups: list[OutcomeSum]
    is_of_few: bool = False


def read_report(database: Database, question: OutcomeQuestion) -> OutcomeReport:
    """Return the outcomes and the spending of a period. Unavailable."""
    span = question.span
    whole = Span(span.first, span.end, "all")
    by_key = database.view(lambda: sum_outcomes(database, question.owners, whole, "api_key"))
    if _people_of(question, question.keys, {row.value for row in by_key}).are_few:
        return OutcomeReport(OutcomeSum(""), {}, [], is_of_few=True)
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
    if question.hidden and question.group not in PERSONAL:
        people = _people_of_groups(database, question, span, {row.value for row in by_key})
        sums = _join_small({one.id: one for one in sums}, people)
    return sorted(sums, key=lambda one: (-one.cost_nusd, one.id))


def _people_of(question: OutcomeQuestion, key_ids: Iterable[str], reported: Collection[str]) -> People:
    """Return the people of some keys, of which some `reported` something."""
    some = list(key_ids)
    reporting = question.hidden_people(ident for ident in some if ident in reported)
    keys = ((ident, question.keys[ident]) for ident in some if ident in question.keys)
    able = (ident for ident, key in keys if key.state == "active" and key.owner_active)
    return People(reporting, reporting | question.hidden_people(able))


def _people_of_groups(
    database: Database, question: OutcomeQuestion, span: Span, reported: Collection[str]
) -> dict[str, People]:
    """Return the people of each team or project; of a repository or model, those who reported something with it."""
    if question.group not in REPORTED:
        owned: dict[str, set[str]] = {}
        for key_id, key in question.keys.items():
            for value in _values_of(question, key_id, key):
                owned.setdefault(value, set()).add(key_id)
        return {value: _people_of(question, some, reported) for value, some in owned.items()}
    dimension = REPORTED[question.group]
    reporters: dict[str, frozenset[str]] = {}
    for value, some in database.view(lambda: list_reporters(database, question.owners, span, dimension)).items():
        name = model_name(value) if dimension == "model" else value
        reporters[name] = reporters.get(name, frozenset()) | question.hidden_people(some)
    return {value: People(some, some) for value, some in reporters.items()}


def _join_small(sums: dict[str, OutcomeSum], people: Mapping[str, People]) -> list[OutcomeSum]:
    """Join groups of few people to one, and others with it until that is of several: what is left of the total must not
    tell either what one person did."""
    named = [ident for ident in sums if people.get(ident, NOBODY).reporting]
    named.sort(key=lambda ident: (len(people[ident].all), -sums[ident].cost_nusd, ident))
    joined = OutcomeSum(FEW_PEOPLE)
    few: set[str] = set()
    for ident in named:
        if not people[ident].are_few and (not few or len(few) >= MIN_PEOPLE):
            break
        few |= people[ident].all
        _add(joined, sums.pop(ident))
    return [*sums.values(), joined] if few else list(sums.values())


def model_name(name: str) -> str:
    """Return a model without its provider: agents name theirs with or without."""
    return name.rpartition("/")[2]


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
    it: of the requests of the keys that named it, because whoever names another's session must not take its cost."""
    reported = database.view(lambda: sum_outcomes(database, owners, span, "repository"))
    repositories = database.view(lambda: list_repositories(database, owners, span, MAX_REPOSITORY_SESSIONS))
    sessions = sorted(repositories, key=lambda place: place.session)

    def measure_spend() -> tuple[list[tuple[str, ActivityFigures]], list[Row]]:
        found = []
        for start in range(0, len(sessions), NAMES):
            some = set(sessions[start : start + NAMES])
            keys = Owners(key_ids=tuple(sorted({place.key_id for place in some})))
            names = TagValues(SESSION, tuple(sorted({place.session for place in some})))
            for row in measure(database, keys, span, "api_key_tag", FIGURES, names):
                place = KeySession(f"key_{row.value[0].hex()}", row.value[1])
                if place in some:  # else the session of the same name of another key
                    found.append((repositories[place], row.figures))
        return found, measure(database, owners, span, "total", FIGURES)

    spent, everything = at_once(database, measure_spend)
    sums = {row.value: OutcomeSum(row.value, row.figures) for row in reported}
    for name, figures in spent:
        one = sums.setdefault(name, OutcomeSum(name))
        one.add_spend(figures)
        one.agent_cost_nusd += figures.cost_nusd
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
        name = model_name(reported.value)
        sums.setdefault(name, OutcomeSum(name)).outcomes.add(reported.figures)
    return list(sums.values())
