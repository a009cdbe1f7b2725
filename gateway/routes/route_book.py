"""The published routes of all organizations as requests read them: from memory under the control version."""

import json
import logging
import tomllib
from collections.abc import Container, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from gateway.configuration.settings import CONFIG
from gateway.control.version import Control
from gateway.errors import GatewayError
from gateway.neutral.request import AUTO, DYNAMIC, MARKS, OWN_PREFIX, SMART, unmarked
from gateway.routes.compiled import CompiledRoute, compile_route
from gateway.routes.route_document import load_document, read_document
from gateway.runtime.call_merging import SharedCalls
from gateway.runtime.threads import compute_if
from gateway.store.database import Database

log = logging.getLogger(__name__)
TABLE = CONFIG / "routes" / "smart.toml"
NAMES = "SELECT organization_id, name, aliases FROM model_route WHERE published > 0 LIMIT ?"
ROUTES = (
    "SELECT r.name, r.aliases, r.project_id, r.published, v.document FROM model_route r "
    "JOIN model_route_version v ON v.route_id = r.id AND v.version = r.published WHERE r.organization_id = ?"
)
TEAMS = (
    "SELECT tm.member_id, tm.team_id FROM team_member tm JOIN team t ON t.id = tm.team_id WHERE t.organization_id = ?"
)
MAX_NAMED = 10_000  # published routes with remembered names; with more, each request looks its route up
# Bounds of the routes in the memory of a worker, in characters of their documents: compiled each takes 4 to 18
# bytes. An organization and a membership of a team count as so many.
MAX_CHARACTERS = 8 << 20
CHARACTERS_PER_ORGANIZATION, CHARACTERS_PER_MEMBERSHIP = 200, 30
LARGE = 1 << 15  # characters of an organization that are compiled in a thread


def read_smart(text: str) -> tuple[CompiledRoute, tuple[str, ...]]:
    """Return the built-in route of a TOML text, and its names as lists of models have them."""
    table = tomllib.loads(text)
    route = compile_route(SMART, table["version"], read_document(table["document"]), last_resort=AUTO)
    return route, (SMART, *table["aliases"])


SMART_ROUTE, SMART_LISTED = read_smart(TABLE.read_text())
SMART_NAMES = frozenset((*SMART_LISTED, *[f"{OWN_PREFIX}{name}" for name in SMART_LISTED]))


class _Anything:
    """Contains every name, so that each request looks its route up."""

    def __contains__(self, name: object) -> bool:
        return True


class OrganizationRoutes(Struct, frozen=True, eq=False):
    """The published routes of an organization by every name that calls them, and the teams of its members if a rule
    names teams. `characters` is what it counts as in memory."""

    routes: dict[str, tuple[CompiledRoute, ...]]
    teams: dict[str, frozenset[str]] = {}
    characters: int = CHARACTERS_PER_ORGANIZATION

    def find(self, project_id: str, name: str) -> CompiledRoute | None:
        found = self.routes.get(name, ())
        own = next((route for route in found if route.project_id == project_id), None)
        return own or next((route for route in found if not route.project_id), None)


NO_ROUTES = OrganizationRoutes({})
NO_TEAMS: frozenset[str] = frozenset()


class RouteBook:
    """`names` contains every name by which some organization calls a route, so that other requests look no further."""

    def __init__(self, database: Database, control: Control) -> None:
        self._database = database
        self._control = control
        self._version = -1
        self._organizations: Container[str] = frozenset()
        # In the order in which they were read; the oldest are dropped first.
        self._read_ones: dict[str, OrganizationRoutes] = {}
        self._characters = 0
        self._reads: SharedCalls[tuple[int, str], OrganizationRoutes] = SharedCalls()
        self._name_reads: SharedCalls[int, Container[str]] = SharedCalls()
        self._stale = True
        self.names: Container[str] = _Anything()
        control.on_change(self._forget, self._renew)

    def find(self, organization_id: str, project_id: str, requested: str) -> CompiledRoute | None:
        """Return the route that a model name calls, None for any other name. The built-in route `smart` can be
        replaced by one of this name. Unavailable when the store was down since a change."""
        name = unmarked(requested.strip()).removeprefix(OWN_PREFIX)
        route = self._routes_of(organization_id).find(project_id, name)
        if route is None and name.lower() in SMART_NAMES:
            return SMART_ROUTE
        return route

    def names_of(self, organization_id: str, project_id: str) -> list[tuple[str, CompiledRoute]]:
        """Return each name by which a project calls a route, in alphabetical order. Unavailable."""
        known = self._routes_of(organization_id)
        found = {name: route for name in known.routes if (route := known.find(project_id, name)) is not None}
        found.setdefault(SMART, SMART_ROUTE)
        return sorted(found.items(), key=lambda pair: pair[0])

    def teams_of(self, organization_id: str, member_id: str) -> frozenset[str]:
        """Return the ids of a member's teams; () where no route names teams. They are read with the routes, so that a
        worker that knows the routes decides also while the store is down. Unavailable."""
        return self._routes_of(organization_id).teams.get(member_id, NO_TEAMS)

    def _routes_of(self, organization_id: str) -> OrganizationRoutes:
        organizations = self._names_at(self._control.version) if self._stale else self._organizations
        if organization_id not in organizations:
            return NO_ROUTES
        routes = None if self._stale else self._read_ones.get(organization_id)
        if routes is None:
            version = self._version
            seen = self._control.version  # a request after a change does not get an earlier read
            routes = self._reads.run((seen, organization_id), partial(_read_routes, self._database, organization_id))
            if version == self._version and not self._stale:
                self._keep(organization_id, routes)
        return routes

    def _keep(self, organization_id: str, routes: OrganizationRoutes) -> None:
        replaced = self._read_ones.pop(organization_id, None)
        self._characters += routes.characters - (replaced.characters if replaced is not None else 0)
        while self._characters > MAX_CHARACTERS and self._read_ones:
            self._characters -= self._read_ones.pop(next(iter(self._read_ones))).characters
        self._read_ones[organization_id] = routes

    def _forget(self, version: int) -> None:
        self._stale = True
        self.names = _Anything()

    def _renew(self, version: int) -> None:
        """Read the names of all routes again."""
        try:
            self._names_at(version)
        except GatewayError:
            return  # the next request asks again

    def _names_at(self, version: int) -> Container[str]:
        return self._name_reads.run(version, partial(self._read_names, version))

    def _read_names(self, version: int) -> Container[str]:
        """Return the organizations that have routes, or any where many have some."""
        rows = self._database.read(lambda: list(self._database.fetch(NAMES, (MAX_NAMED + 1,))))
        organizations: Container[str] = frozenset(row[0] for row in rows)
        if len(rows) > MAX_NAMED:
            organizations = _Anything()
        # The result of a read that a change overtook serves its caller, but is not kept.
        if version < max(self._version, self._control.version):
            return organizations
        self._version = version
        self._read_ones = {}
        self._characters = 0
        self._organizations = organizations
        self.names = _Anything() if len(rows) > MAX_NAMED else _names_in(rows)
        self._stale = False
        return organizations


def called_by(name: str, aliases: list[str]) -> tuple[str, ...]:
    """Return every model name that calls a route."""
    own = SMART_NAMES if name == SMART else ()
    return (f"{DYNAMIC}{name}", *aliases, *own)


def _names_in(rows: Sequence[Sequence[Any]]) -> frozenset[str]:
    names = set(SMART_NAMES)
    for _, name, aliases in rows:
        names.update(called_by(name, json.loads(aliases)))
    # Agents add the mark of a long context to any name.
    return frozenset(f"{name}{mark}" for name in names for mark in ("", *MARKS))


def _read_routes(database: Database, organization_id: str) -> OrganizationRoutes:
    def read() -> tuple[list[Any], list[Any]]:
        rows = list(database.fetch(ROUTES, (organization_id,)))
        has_teams = any('"teams"' in row[4] for row in rows)
        return rows, list(database.fetch(TEAMS, (organization_id,))) if has_teams else []

    rows, memberships = database.read(read)
    characters = sum(len(row[4]) for row in rows) + CHARACTERS_PER_MEMBERSHIP * len(memberships)
    return compute_if(characters > LARGE, _compile_routes, rows, memberships, characters)


def _compile_routes(
    rows: Sequence[Sequence[Any]], memberships: Sequence[Sequence[str]], characters: int
) -> OrganizationRoutes:
    teams: dict[str, set[str]] = {}
    for member_id, team_id in memberships:
        teams.setdefault(member_id, set()).add(team_id)
    routes: dict[str, tuple[CompiledRoute, ...]] = {}
    for name, aliases, project_id, version, text in rows:
        try:
            route = compile_route(name, version, load_document(text), project_id)
        except msgspec.ValidationError:
            log.error("version %s of the route %s is of a later release and cannot be read", version, name)
            continue
        for called in called_by(name, json.loads(aliases)):
            routes[called] = (*routes.get(called, ()), route)
    known = {member_id: frozenset(own) for member_id, own in teams.items()}
    return OrganizationRoutes(routes, known, CHARACTERS_PER_ORGANIZATION + characters)


def is_route_name(name: Any) -> bool:
    """Return whether a model name is one that only routes have."""
    text = str(name)
    return text.startswith(DYNAMIC) or text.lower() in SMART_NAMES
