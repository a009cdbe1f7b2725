"""Dry run of a route over stored usage: what its rules would have chosen in the last days, and what that would cost."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct, field

from gateway.callers.models import Project
from gateway.catalogue.prices import cost_of, reduced
from gateway.clock import DAY_US
from gateway.limits.limit_book import read_teams
from gateway.metering.models import SETTLEMENT
from gateway.metering.route_usage import SEEN
from gateway.neutral.usage import Usage
from gateway.reports.simulated_days import SimulatedDays, StoredRow, request_of, walk_days
from gateway.routes.choices import mapping_at
from gateway.routes.compiled import CompiledRoute, CompiledRule, Test
from gateway.routes.route_prices import RoutePrices
from gateway.runtime.threads import compute
from gateway.store.database import Database
from gateway.store.partitions import time_of

MAX_CHOICES = 1_000  # rules and models that are listed
NO_TEAMS: frozenset[str] = frozenset()
ROWS = (
    "SELECT request, cost_nusd, api_key, member, project, provider, served, source, session, asked, input, cache_read, "
    "cache_write, output, reasoning, discount_ppm, extra FROM usage WHERE project = ? AND request >= ? AND request < ? "
    f"AND operation = 'chat' AND error IS NULL AND kind = {SETTLEMENT} ORDER BY request DESC LIMIT ?"
)


class SimulatedChoice(Struct):
    """The requests that a rule would have sent to a model: what they cost, and what they would have cost."""

    rule: str
    model: str
    requests: int = 0
    changed: int = 0
    cost_nusd: int = 0
    new_cost_nusd: int = 0


class RouteSimulation(SimulatedDays):
    """The requests of [since_us, until_us), each evaluated alone. `undecided` are those with a rule about something
    that is not stored, such as headers: they count at their cost. `changed` would have used another model."""

    undecided: int = 0
    changed: int = 0
    cost_nusd: int = 0
    new_cost_nusd: int = 0
    choices: list[SimulatedChoice] = field(default_factory=list)


def simulate_route(
    database: Database,
    organization_id: str,
    route: CompiledRoute,
    prices: RoutePrices,
    days: int,
    requested: frozenset[str] = frozenset(),
) -> RouteSimulation:
    """Return what a route would have chosen in the last days for requests of the models `requested`, () for all chat
    requests. Rows are read a few at a time, and examined in a thread."""
    until = database.now_us()
    done = RouteSimulation(until - days * DAY_US, until)
    projects = [route.project_id] if route.project_id else database.read(partial(_list_projects, organization_id))
    teams = database.read(partial(read_teams, database, organization_id))
    replay = _Replay(route, prices, teams, requested, done)
    for chunk in walk_days(database, ROWS, projects, done):
        compute(replay.add, chunk)
    done.choices = sorted(replay.choices.values(), key=lambda one: one.requests, reverse=True)[:MAX_CHOICES]
    return done


def _list_projects(organization_id: str) -> list[str]:
    return [row.id for row in Project.select(Project.id).where(Project.organization == organization_id)]


class _ValueNotStored(Exception):
    """A rule needs a value that is not stored in usage rows."""


class _StoredNeeds(Struct):
    prompt_bytes: int
    likely_media_tokens: int = 0

    @property
    def tools(self) -> bool:
        raise _ValueNotStored

    vision = earlier_images = tools


class _StoredRequest:
    """A request as far as its row has it, in the form that the rules of a route read (compiled.RoutedRequest)."""

    def __init__(self, row: StoredRow, teams: Mapping[str, frozenset[str]]) -> None:
        self.request = self  # its requirements are its own member
        self.key_id = f"key_{bytes(row[2]).hex()}"
        self.project_id = f"proj_{bytes(row[4]).hex()}"
        self.source = row[7] or ""
        self.at_us = time_of(request_of(row))
        self.requirements = _StoredNeeds(4 * (row[10] + row[11] + row[12]))
        self._member_id = f"member_{bytes(row[3]).hex()}"
        self._teams = teams
        self._seen = msgspec.json.decode(row[16]).get(SEEN) if row[16] else None

    def teams_of(self) -> frozenset[str]:
        return self._teams.get(self._member_id, NO_TEAMS)

    @property
    def turn(self) -> str:
        return self._known(0)

    @property
    def agent(self) -> str:
        return self._known(1)

    @property
    def difficulty(self) -> str:
        return self._known(2)

    def _known(self, place: int) -> str:
        if self._seen is None or not self._seen[place]:
            raise _ValueNotStored
        return str(self._seen[place])

    def __getattr__(self, name: str) -> Any:
        raise _ValueNotStored


def _by_member(teams: Mapping[str, set[str]]) -> dict[str, frozenset[str]]:
    """Return the teams of each member."""
    found: dict[str, set[str]] = {}
    for team, members in teams.items():
        for member in members:
            found.setdefault(member, set()).add(team)
    return {member: frozenset(own) for member, own in found.items()}


class _Replay:
    """Counts the choices of the rules."""

    def __init__(
        self,
        route: CompiledRoute,
        prices: RoutePrices,
        teams: Mapping[str, set[str]],
        requested: frozenset[str],
        done: RouteSimulation,
    ) -> None:
        self._route = route
        self._prices = prices
        self._teams = _by_member(teams)
        self._requested = requested
        self._done = done
        self.choices: dict[tuple[str, str], SimulatedChoice] = {}

    def add(self, rows: Sequence[StoredRow]) -> None:
        for row in rows:
            if not self._requested or row[9] in self._requested:
                self._add(row)

    def _add(self, row: StoredRow) -> None:
        done = self._done
        cost = int(row[1])
        done.requests += 1
        done.cost_nusd += cost
        rule = self._choose(_StoredRequest(row, self._teams))
        found = None if rule is None else self._price(rule, row)
        if rule is None or found is None:
            done.undecided += 1
            done.new_cost_nusd += cost
            return
        model, new_cost = found
        changed = model != row[6]
        choice = self.choices.setdefault((rule.name, model), SimulatedChoice(rule.name, model))
        choice.requests += 1
        choice.changed += changed
        choice.cost_nusd += cost
        choice.new_cost_nusd += new_cost
        done.changed += changed
        done.new_cost_nusd += new_cost

    def _choose(self, request: Any) -> CompiledRule | None:
        """Return the deciding rule, None if the rows lack the answer."""
        for rule in self._route.rules:
            holds = _holds(rule.tests, request)
            if holds is None:
                return None
            if holds:
                return rule
        return self._route.otherwise

    def _price(self, rule: CompiledRule, row: StoredRow) -> tuple[str, int] | None:
        """Return the first model with a price, and what it costs; None if none has one."""
        provider, served = row[5], row[6]
        for name in rule.pick(f"{self._route.name}\0{row[8] or request_of(row).hex()}"):
            mapping = mapping_at(self._prices.mappings_of(name), provider)
            if mapping is None:
                continue
            if mapping.model == served:
                return served, int(row[1])
            usage = Usage(input=row[10], cache_read=row[11], cache_write=row[12], output=row[13], reasoning=row[14])
            cost = cost_of(usage, mapping, time_of(request_of(row))).total
            return mapping.model, reduced(cost, row[15] or 0)
        return None


def _holds(tests: Sequence[Test], request: Any) -> bool | None:
    """Return whether all tests hold; None if the rows lack the answer."""
    unknown = False
    for test in tests:
        try:
            if not test(request):
                return False
        except _ValueNotStored:
            unknown = True
    return None if unknown else True
