"""Roles in a part of an organization: leads of teams and admins of projects."""

from collections.abc import Iterable
from functools import partial

from msgspec import Struct

from gateway.accounts import audit
from gateway.accounts.changes import commit
from gateway.callers.models import Member, Project, ScopedRole, Team
from gateway.callers.permissions import PROJECT_ADMIN, TEAM_LEAD
from gateway.control.version import Control
from gateway.errors import InvalidRequest, NotFound
from gateway.store.database import Database

TEAM_PREFIX = "team_"
PROJECT_PREFIX = "proj_"


class Parts(Struct, frozen=True):
    """The teams that a member leads, and the projects of which the member is an admin."""

    teams: frozenset[str] = frozenset()
    projects: frozenset[str] = frozenset()


NO_PARTS = Parts()
MEMBERS_PER_STATEMENT = 1_000


def read_parts(database: Database, member_id: str) -> Parts:
    """Return the teams and projects in which a member has a role."""
    query = ScopedRole.select(ScopedRole.scope_id).where(ScopedRole.member == member_id)
    found = database.read(lambda: [row.scope_id for row in query])
    return Parts(
        frozenset(scope_id for scope_id in found if scope_id.startswith(TEAM_PREFIX)),
        frozenset(scope_id for scope_id in found if scope_id.startswith(PROJECT_PREFIX)),
    )


def list_roles(database: Database, member_ids: list[str]) -> dict[str, list[str]]:
    """Return the ids of the teams and projects in which each member has a role."""
    roles: dict[str, list[str]] = {member_id: [] for member_id in member_ids}

    def read(some: list[str]) -> list[ScopedRole]:
        return list(ScopedRole.select().where(ScopedRole.member.in_(some)).order_by(ScopedRole.scope_id))

    for start in range(0, len(member_ids), MEMBERS_PER_STATEMENT):
        for row in database.read(partial(read, member_ids[start : start + MEMBERS_PER_STATEMENT])):
            roles[row.member_id].append(row.scope_id)
    return roles


def list_holders(database: Database, scope_ids: list[str]) -> dict[str, list[str]]:
    """Return the ids of the members with a role in each team or project, oldest member first."""
    holders: dict[str, list[str]] = {scope_id: [] for scope_id in scope_ids}
    query = ScopedRole.select().where(ScopedRole.scope_id.in_(scope_ids)).order_by(ScopedRole.member)
    for row in database.read(lambda: list(query)):
        holders[row.scope_id].append(row.member_id)
    return holders


def find_existing(organization_id: str, scope_ids: Iterable[str]) -> set[str]:
    """Return those of the ids that are teams or projects of an organization. Within a read or write."""
    wanted = list(scope_ids)
    if not wanted:
        return set()
    teams = Team.select(Team.id).where(Team.organization == organization_id, Team.id.in_(wanted))
    projects = Project.select(Project.id).where(Project.organization == organization_id, Project.id.in_(wanted))
    return {row.id for query in (teams, projects) for row in query}


def check_parts(organization_id: str, scope_ids: Iterable[str]) -> None:
    """Raise NotFound for a team or project of another organization. Within a read or write."""
    wanted = set(scope_ids)
    missing = wanted - find_existing(organization_id, wanted)
    if missing:
        raise NotFound(f"There is no team or project {min(missing)[:80]} in this organization.")


def set_role(database: Database, control: Control, scope_id: str, member_id: str, held: bool, *, actor: str) -> None:
    """Give a member the role in a team or project, or take it away: in force on all workers when this returns. Raises
    NotFound."""
    commit(database, control, lambda now: write_role(scope_id, member_id, held, actor=actor, now=now))


def write_role(scope_id: str, member_id: str, held: bool, *, actor: str, now: int) -> None:
    """The part of `set_role` that runs within a transaction."""
    member = Member.get_or_none(Member.id == member_id)
    scope: Team | Project | None
    if scope_id.startswith(TEAM_PREFIX):
        scope, role = Team.get_or_none(Team.id == scope_id), TEAM_LEAD
    else:
        scope, role = Project.get_or_none(Project.id == scope_id), PROJECT_ADMIN
    if scope is None or member is None or member.organization_id != scope.organization_id:
        raise NotFound(f"There is no {scope_id} in the organization of member {member_id}.")
    if held and member.status != "active":
        raise InvalidRequest("Only an active member can have a role.", param="memberId")
    ScopedRole.delete().where(ScopedRole.scope_id == scope_id, ScopedRole.member == member_id).execute()
    if held:
        ScopedRole.insert(scope_id=scope_id, member=member_id, created_at=now).execute()
    detail = {"role": role, "scope": scope_id, "held": held}
    audit.append(
        "member.update", member_id, actor=actor, at_us=now, organization_id=scope.organization_id, detail=detail
    )


def end_roles(*, member_id: str = "", scope_id: str = "") -> None:
    """Remove all roles of a member, in a team or project, or of the one in the other. Within a transaction."""
    conditions = []
    if member_id:
        conditions.append(ScopedRole.member == member_id)
    if scope_id:
        conditions.append(ScopedRole.scope_id == scope_id)
    ScopedRole.delete().where(*conditions).execute()
