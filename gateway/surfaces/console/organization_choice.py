"""The organization that a page is about: the one in the query, else the first that the visitor may see there; and the
caller that a new key of a member would have."""

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct

from gateway.accounts.keys import KeyInfo, list_keys
from gateway.accounts.members import MemberInfo
from gateway.accounts.organizations import OrganizationInfo, find_organization
from gateway.accounts.projects import ProjectInfo
from gateway.accounts.rules import list_rules
from gateway.accounts.teams import list_teams
from gateway.callers.authentication import Caller
from gateway.callers.compliance import read_policy
from gateway.callers.permissions import Permission
from gateway.callers.rule_values import compile_levels
from gateway.errors import Forbidden
from gateway.store.database import Database
from gateway.surfaces.console.choice_bar import ChoiceField
from gateway.surfaces.console.kept_choices import read_choices as read_kept
from gateway.surfaces.console.page_calls import PageCall
from gateway.surfaces.visitors.visitor import Visitor

# The caller that a new key of a member would have: for reports on what the member may call without a key.


def caller_without_key(database: Database, project: ProjectInfo, member: MemberInfo) -> Caller:
    """Return the caller of a key of `member` in `project` that has no access rules itself. Raises NotFound."""
    organization = find_organization(database, project.organization_id)
    teams = [team for team in list_teams(database, organization.id) if member.id in team.member_ids]
    places = {("organization", organization.id), ("member", member.id), *(("team", team.id) for team in teams)}
    rules = [rule for rule in list_rules(database, organization.id) if (rule.scope, rule.scope_id) in places]
    return Caller(
        key_id="",
        key_kind="user",
        key_name="",
        organization_id=organization.id,
        project_id=project.id,
        user_id=member.user_id,
        member_id=member.id,
        role=member.role,
        mode=project.mode,
        cache_markers=project.cache_markers,
        settings=project.settings,
        rules=compile_levels(organization.id, read_policy(organization.policy), rules),
        teams=tuple(sorted((team.id, team.name) for team in teams if team.limited)),
    )


# The choice of the pages about models and routing: for which project or key of the visitor they answer.

FIELD = "for"
MAX_LISTED = 200  # newest keys of a visitor that are read
MAX_KEYS = 100  # newest keys among which one is chosen


def list_visible_keys(
    visitor: Visitor, projects: list[ProjectInfo], words: Sequence[str] = (), newest: int = MAX_LISTED
) -> list[KeyInfo]:
    """Return the newest keys of the organizations and projects that the visitor manages, and own keys in others; with
    `words` among those that have all of them."""
    database = visitor.services.store.database
    visible = []
    for organization_id, membership in visitor.memberships.items():
        reach = visitor.reach(organization_id, "keys:read")
        here = [project.id for project in projects if project.organization_id == organization_id]
        whole = [ident for ident in here if reach.whole or ident in reach.projects]
        visible += list_keys(database, project_ids=whole, newest=newest, words=words)
        if reach.own:
            rest = [ident for ident in here if ident not in whole]
            visible += list_keys(database, project_ids=rest, member_id=membership.id, newest=newest, words=words)
    return sorted(visible, key=attrgetter("id"), reverse=True)


class CallerChoices(NamedTuple):
    """The active projects of a visitor, each with its active keys that the visitor may see. `chosen` is the id of a
    project or of a key, "" where there is no project."""

    groups: tuple[tuple[ProjectInfo, tuple[KeyInfo, ...]], ...]
    chosen: str

    @property
    def project(self) -> ProjectInfo | None:
        """Return the chosen project, or that of the chosen key; None without any."""
        for project, keys in self.groups:
            if self.chosen == project.id or any(key.id == self.chosen for key in keys):
                return project
        return None


def read_choices(visitor: Visitor, chosen: str) -> CallerChoices:
    """Return the choices of a visitor; an unknown choice becomes the first project."""
    projects = visitor.projects()
    active = [project for project in projects if project.status == "active"]
    keys = [key for key in list_visible_keys(visitor, active)[:MAX_KEYS] if key.state == "active" and key.owner_active]
    groups = tuple((project, tuple(key for key in keys if key.project_id == project.id)) for project in active)
    known = [ident for project, own in groups for ident in (project.id, *(key.id for key in own))]
    if chosen not in known:
        chosen = known[0] if known else ""
    return CallerChoices(groups, chosen)


def find_caller(visitor: Visitor, choices: CallerChoices) -> Caller | None:
    """Return the caller of the chosen key, or for a project that of a new key of the visitor; None without a choice.
    Raises Unauthenticated or Gone for a key that may not be used."""
    project = choices.project
    if project is None:
        return None
    if choices.chosen != project.id:
        return visitor.services.accounts.authentication.caller_of_key(choices.chosen)
    return caller_without_key(visitor.services.store.database, project, visitor.member(project.organization_id))


PARAMETER = "organization"


class OrganizationChoice(Struct, frozen=True):
    """The organization of a page, and all that the visitor may choose."""

    chosen: OrganizationInfo
    managed: list[OrganizationInfo]

    @property
    def id(self) -> str:
        return self.chosen.id

    @property
    def field(self) -> ChoiceField:
        """Return the field of the bar that chooses another organization."""
        return ChoiceField(PARAMETER, "Organization", self.options, self.id)

    @property
    def options(self) -> list[tuple[str, str]]:
        """Return the choices of a field; none for a visitor with a single organization."""
        if len(self.managed) < 2:
            return []
        return [(organization.id, organization.name) for organization in self.managed]


def choose_organization(call: PageCall, permission: Permission = "organization:write") -> OrganizationChoice:
    """Return the organization of the request. Raises NotFound, and Forbidden for a visitor without the permission in
    it, which may cover a part of the organization only."""
    # The memberships are those of the start of the request: an organization that it created is listed by the next one.
    visitor = call.visitor
    managed = [organization for organization in visitor.organizations() if visitor.may(permission, organization.id)]
    named = call.params.get("organization_id") or call.arguments.get(PARAMETER, "")
    kept = "" if named else read_kept(call.inbound).get(PARAMETER, "")
    if named:
        visitor.check(named, permission, visitor.may(permission, named))
    if not managed:
        raise Forbidden("Your role does not allow this page.")
    return OrganizationChoice(
        next((organization for organization in managed if organization.id == (named or kept)), managed[0]), managed
    )
