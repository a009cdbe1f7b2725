"""The names by which usage is stacked: what each part of a report belongs to, and the requests behind it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gateway.accounts.keys import KeyInfo
from gateway.accounts.projects import list_projects
from gateway.accounts.teams import list_teams
from gateway.metering.rollups.rollup_table import OTHER
from gateway.surfaces.console.usage.tag_steps import PARTS
from gateway.surfaces.usage_report import BREAKDOWNS, visible_keys
from gateway.surfaces.visitor import MANAGERS, Visitor

NO_APP = "No app named"
NO_TEAM = "No team"
NO_SESSION = "No session"
NO_TAG = "Without this tag"
OTHERS = {OTHER: "All others"}
APPS = "appBreakdown"
TAGS = ("tag", "session")


class GroupName(NamedTuple):
    """The name of a part. `filters` are those of the request log that find its requests; none: it has no filter."""

    id: str
    name: str
    filters: Mapping[str, str] = {}


class Grouping(NamedTuple):
    """A way to group. `report` is the breakdown of the usage report that it is made of, "app" for that by app, "tag"
    and "session" for those of tags."""

    label: str
    report: str
    find_name: Callable[[Visitor], Callable[[dict[str, Any]], GroupName]]

    @property
    def is_of_tags(self) -> bool:
        """Return whether it is by tag or session."""
        return self.report in TAGS

    @property
    def parts(self) -> str:
        """Return the member of a step that holds the parts."""
        if self.is_of_tags:
            return PARTS
        return BREAKDOWNS.get(self.report, APPS)


def _by_model(visitor: Visitor) -> Callable[[dict[str, Any]], GroupName]:
    def name(part: dict[str, Any]) -> GroupName:
        full = f"{part['provider']}/{part['id']}"
        return GroupName(full, full, {"model": full})

    return name


def _by_provider(visitor: Visitor) -> Callable[[dict[str, Any]], GroupName]:
    return lambda part: GroupName(part["provider"], part["provider"], {"provider": part["provider"]})


def _by_key(visitor: Visitor) -> Callable[[dict[str, Any]], GroupName]:
    return lambda part: GroupName(part["id"], part["description"] or part["id"], {"apiKeyId": part["id"]})


def _by_person(visitor: Visitor) -> Callable[[dict[str, Any]], GroupName]:
    return lambda part: GroupName(part["id"], part["description"] or part["id"], {"userId": part["id"]})


def _by_app(visitor: Visitor) -> Callable[[dict[str, Any]], GroupName]:
    return lambda part: GroupName(part["id"], part["id"] or NO_APP, {"source": part["id"] or "unknown"})


def _by_session(visitor: Visitor) -> Callable[[dict[str, Any]], GroupName]:
    def name(part: dict[str, Any]) -> GroupName:
        if part["id"] in ("", OTHER):
            return GroupName(part["id"], OTHERS.get(part["id"], NO_SESSION))
        return GroupName(part["id"], part["id"], {"session": part["id"]})

    return name


def _by_tag(visitor: Visitor) -> Callable[[dict[str, Any]], GroupName]:
    def name(part: dict[str, Any]) -> GroupName:
        if part["id"] in ("", OTHER):
            return GroupName(part["id"], OTHERS.get(part["id"], NO_TAG))
        return GroupName(part["id"], part["id"], {"metadata": f"{part['tag']}:{part['id']}"})

    return name


def _by_project(visitor: Visitor) -> Callable[[dict[str, Any]], GroupName]:
    keys = visible_keys(visitor)
    projects = {
        project.id: project.name
        for project in list_projects(visitor.services.store.database, list(visitor.memberships))
    }

    def name(part: dict[str, Any]) -> GroupName:
        key = keys.get(part["id"])
        if key is None:
            return GroupName("", "Unknown project")
        return GroupName(key.project_id, projects.get(key.project_id, key.project_id), {"projectId": key.project_id})

    return name


def _by_team(visitor: Visitor) -> Callable[[dict[str, Any]], GroupName]:
    """A person in several teams counts for their combination, so that the sum stays that of all requests."""
    keys: Mapping[str, KeyInfo] = visible_keys(visitor)
    teams: dict[str, list[str]] = {}
    for organization_id, membership in visitor.memberships.items():
        if membership.role in MANAGERS:
            for team in list_teams(visitor.services.store.database, organization_id):
                for member_id in team.member_ids:
                    teams.setdefault(member_id, []).append(team.name)

    def name(part: dict[str, Any]) -> GroupName:
        key = keys.get(part["id"])
        names = teams.get(key.member_id, []) if key else []
        text = ", ".join(sorted(names)) or NO_TEAM
        return GroupName(text, text)

    return name


GROUPS: dict[str, Grouping] = {
    "model": Grouping("Model", "model", _by_model),
    "provider": Grouping("Provider", "model", _by_provider),
    "apiKey": Grouping("API key", "apiKey", _by_key),
    "user": Grouping("Person", "user", _by_person),
    "team": Grouping("Team", "apiKey", _by_team),
    "project": Grouping("Project", "apiKey", _by_project),
    "app": Grouping("App", "app", _by_app),
    "tag": Grouping("Tag", "tag", _by_tag),
    "session": Grouping("Session", "session", _by_session),
}
