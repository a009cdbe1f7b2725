"""The names by which usage is stacked: to which name each row of the sums belongs, and the requests behind it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gateway.accounts.keys import KeyInfo
from gateway.accounts.members import list_members
from gateway.accounts.projects import list_projects
from gateway.accounts.teams import list_teams
from gateway.metering.activity import Dimension
from gateway.metering.rollups.rollup_table import OTHER
from gateway.metering.usage_table import raw_id
from gateway.surfaces.console.shown_figures import ATTRIBUTE_LABELS
from gateway.surfaces.visitors.visitor import Visitor

NO_APP = "No app named"
NO_TEAM = "No team"
NO_SESSION = "No session"
NO_ATTRIBUTE = "Not stated"
NO_TAG = "Without this tag"
ALL_OTHERS = "All others"


class GroupName(NamedTuple):
    """The name of a part. `filters` are those of the request log that find its requests; none: it has no filter."""

    id: str
    name: str
    filters: Mapping[str, str] = {}


class GroupingScope(NamedTuple):
    """The visitor, the keys of the period by id, and the name of the tag."""

    visitor: Visitor
    keys: Mapping[str, KeyInfo]
    tag: str


Namer = Callable[[tuple[Any, ...]], GroupName]  # of a row, by its values


class Grouping(NamedTuple):
    """A way to group the rows of a dimension. `attribute`: by an attribute of the person at the time of the usage."""

    label: str
    dimension: Dimension
    find_name: Callable[[GroupingScope], Namer]
    attribute: str = ""

    @property
    def is_of_owners(self) -> bool:
        """Return whether its rows are those of keys or projects."""
        return self.dimension in ("api_key", "owner") and not self.attribute


def _by_model(scope: GroupingScope) -> Namer:
    def name(values: tuple[Any, ...]) -> GroupName:
        full = f"{values[1]}/{values[0]}"
        return GroupName(full, full, {"model": full})

    return name


def _by_provider(scope: GroupingScope) -> Namer:
    return lambda values: GroupName(values[1], values[1], {"provider": values[1]})


def _by_app(scope: GroupingScope) -> Namer:
    known = scope.visitor.services.accounts.sources

    def name(values: tuple[Any, ...]) -> GroupName:
        app = known.canonical(values[0])
        return GroupName(app, app or NO_APP, {"source": app or "unknown"})

    return name


def _by_session(scope: GroupingScope) -> Namer:
    return lambda values: _name_value(values[0], NO_SESSION, {"session": values[0]})


def _by_tag(scope: GroupingScope) -> Namer:
    return lambda values: _name_value(values[0], NO_TAG, {"metadata": f"{scope.tag}:{values[0]}"})


def _by_attribute(scope: GroupingScope) -> Namer:
    return lambda values: _name_value(values[0], NO_ATTRIBUTE, {})


def _name_value(value: str, missing: str, filters: Mapping[str, str]) -> GroupName:
    """Return the name of a session or of a tag's value; those beyond the most expensive have one name."""
    if value == OTHER:
        return GroupName(OTHER, ALL_OTHERS)
    if not value:
        return GroupName("", missing)
    return GroupName(value, value, filters)


def _by_key(scope: GroupingScope) -> Namer:
    return _name_keys(scope, lambda key: GroupName(key.id, key.description or key.id, {"apiKeyId": key.id}))


def _by_person(scope: GroupingScope) -> Namer:
    visitor = scope.visitor
    people = {
        member.id: member
        for organization_id in visitor.memberships
        for member in list_members(visitor.services.store.database, organization_id, service_accounts=True)
    }

    def name(key: KeyInfo) -> GroupName:
        member = people[key.member_id]
        return GroupName(member.user_id, member.name or member.email or member.user_id, {"userId": member.user_id})

    return _name_keys(scope, name)


def _by_project(scope: GroupingScope) -> Namer:
    visitor = scope.visitor
    listed = list_projects(visitor.services.store.database, list(visitor.memberships))
    projects = {project.id: GroupName(project.id, project.name, {"projectId": project.id}) for project in listed}
    of_keys = _name_keys(scope, lambda key: projects[key.project_id])
    of_projects = {raw_id(project_id): named for project_id, named in projects.items()}
    return lambda values: of_projects.get(values[0]) or of_keys(values)


def _by_team(scope: GroupingScope) -> Namer:
    """A person in several teams counts for their combination, so that the sum stays that of all requests."""
    visitor = scope.visitor
    teams: dict[str, list[str]] = {}
    for organization_id in visitor.memberships:
        reach = visitor.reach(organization_id, "teams:read")
        for team in list_teams(visitor.services.store.database, organization_id) if reach else ():
            if reach.whole or team.id in reach.teams:
                for member_id in team.member_ids:
                    teams.setdefault(member_id, []).append(team.name)

    def name(key: KeyInfo) -> GroupName:
        text = ", ".join(sorted(teams.get(key.member_id, ()))) or NO_TEAM
        return GroupName(text, text)

    return _name_keys(scope, name)


def _name_keys(scope: GroupingScope, name: Callable[[KeyInfo], GroupName]) -> Namer:
    named = {raw_id(key.id): name(key) for key in scope.keys.values()}
    return lambda values: named[values[0]]


GROUPS: dict[str, Grouping] = {
    "model": Grouping("Model", "model", _by_model),
    "provider": Grouping("Provider", "model", _by_provider),
    "apiKey": Grouping("API key", "api_key", _by_key),
    "user": Grouping("Person", "api_key", _by_person),
    "team": Grouping("Team", "api_key", _by_team),
    **{
        name: Grouping(ATTRIBUTE_LABELS[name], "api_key", _by_attribute, name)
        for name in ("costCenter", "department", "division")
    },
    "project": Grouping("Project", "owner", _by_project),
    "app": Grouping("App", "source", _by_app),
    "tag": Grouping("Tag", "tag", _by_tag),
    "session": Grouping("Session", "tag", _by_session),
}
