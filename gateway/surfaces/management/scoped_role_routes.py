"""`/orgs/…/teams/…/leads` and `/projects/…/admins`: members with a role in a team or a project."""

from typing import Any

from gateway.accounts import members, scoped_roles
from gateway.accounts.members import MemberInfo
from gateway.accounts.projects import ProjectInfo
from gateway.accounts.teams import TeamInfo
from gateway.surfaces.management.access_groups import AccessGroup, Values, describe, in_project, of_team, of_team_member
from gateway.surfaces.management.managed_operation import ListPageQuery, ManagedCall, managed
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.answer_structs import Answer
from gateway.surfaces.web.http import Operation

TEAMS = "Teams"
PROJECTS = "Projects"


class RoleHolderAnswer(Answer):
    """A member; `role` is that in the organization."""

    columns = ("id", "role", "status", "email")
    id: str
    user_id: str
    email: str
    name: str
    role: str
    status: str


def _find_admin(visitor: Visitor, values: Values) -> MemberInfo:
    """Return the member of a path below a project."""
    project = visitor.project(values["project_id"], "projects:write")
    database = visitor.services.store.database
    member = members.find_in_organization(database, project.organization_id, values["member_id"])
    visitor.authority_for(project.organization_id, "projects:write").check(member.role)
    return member


PROJECT_ADMIN = AccessGroup(
    "projects:write", f"{describe('projects:write')} Only an owner appoints an owner.", _find_admin
)


def list_leads(call: ManagedCall[TeamInfo]) -> list[RoleHolderAnswer]:
    """The members who lead a team: they see its usage, add and remove members, and set limits of the team and its
    members."""
    return _list(call, call.subject.id)


def appoint_lead(call: ManagedCall[MemberInfo]) -> None:
    """Make a member a lead of the team, in addition to the role in the organization."""
    _set(call, call.params["team_id"], True)


def dismiss_lead(call: ManagedCall[MemberInfo]) -> None:
    """The member is no lead of the team any more, and stays in it."""
    _set(call, call.params["team_id"], False)


def list_admins(call: ManagedCall[ProjectInfo]) -> list[RoleHolderAnswer]:
    """The members who administer a project: they see its usage, and change its settings, API keys and admins."""
    return _list(call, call.subject.id)


def appoint_admin(call: ManagedCall[MemberInfo]) -> None:
    """Make a member an admin of the project, in addition to the role in the organization."""
    _set(call, call.params["project_id"], True)


def dismiss_admin(call: ManagedCall[MemberInfo]) -> None:
    """The member is no admin of the project any more."""
    _set(call, call.params["project_id"], False)


def _list(call: ManagedCall[Any], scope_id: str) -> list[RoleHolderAnswer]:
    held = scoped_roles.list_holders(call.database, [scope_id])[scope_id]
    listed = call.page.cut(call.database.read(lambda: members.load_members(held)))
    return [RoleHolderAnswer.of(member) for member in listed]


def _set(call: ManagedCall[MemberInfo], scope_id: str, held: bool) -> None:
    scoped_roles.set_role(*call.stores, scope_id, call.subject.id, held, actor=call.actor)


LEADS = "/orgs/<organization_id>/teams/<team_id>/leads"
ADMINS = "/projects/<project_id>/admins"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", LEADS, list_leads, "List the leads of a team", tag=TEAMS,
            who=of_team("teams:read"), scope="teams:read", query=ListPageQuery, inside="leads",
            commands=("teams leads <team_id>",)),
    managed("PUT", f"{LEADS}/<member_id>", appoint_lead, "Make a member a lead of a team", tag=TEAMS,
            who=of_team_member("teams:write"), message="Team updated.", audit="member.update",
            commands=("teams add-lead <team_id> <member_id>",)),
    managed("DELETE", f"{LEADS}/<member_id>", dismiss_lead, "End a member's role as lead of a team", tag=TEAMS,
            who=of_team_member("teams:write"), message="Team updated.", audit="member.update",
            commands=("teams remove-lead <team_id> <member_id>",)),
    managed("GET", ADMINS, list_admins, "List the admins of a project", tag=PROJECTS,
            who=in_project("projects:read"), scope="projects:read", query=ListPageQuery, inside="admins",
            commands=("projects admins <project_id>",)),
    managed("PUT", f"{ADMINS}/<member_id>", appoint_admin, "Make a member an admin of a project", tag=PROJECTS,
            who=PROJECT_ADMIN, message="Project updated.", audit="member.update",
            commands=("projects add-admin <project_id> <member_id>",)),
    managed("DELETE", f"{ADMINS}/<member_id>", dismiss_admin, "End a member's role as admin of a project",
            tag=PROJECTS, who=PROJECT_ADMIN, message="Project updated.", audit="member.update",
            commands=("projects remove-admin <project_id> <member_id>",)),
)  # fmt: skip
