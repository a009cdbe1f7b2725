"""Teams: groups of members with access rules and spending limits that their keys share."""

from collections.abc import Callable
from functools import partial

from msgspec import Struct

from gateway import ids
from gateway.accounts import audit, client_ids
from gateway.accounts.changes import MAX_TEAMS, check_quota, commit
from gateway.accounts.client_ids import ClientIdClaim
from gateway.accounts.managed_settings import ManagedSettings
from gateway.accounts.organizations import read_name
from gateway.accounts.scoped_roles import end_roles
from gateway.callers.models import AccessRule, Member, Organization, Team, TeamMember
from gateway.control.version import Control
from gateway.errors import Conflict, NotFound
from gateway.limits.owned_rows import forget_owner
from gateway.store.database import WHOLE, Database, ListSlice


class TeamInfo(Struct, frozen=True):
    """`member_ids`: the oldest member first. `limited`: it has spending limits, so what its members spend counts."""

    id: str
    organization_id: str
    name: str
    member_ids: tuple[str, ...] = ()
    limited: bool = False


def create_team(
    database: Database,
    control: Control,
    organization_id: str,
    name: str,
    *,
    actor: str,
    claim: ClientIdClaim | None = None,
) -> TeamInfo:
    """Make a team. InvalidRequest (name), NotFound (organization), Conflict (name taken)."""
    info = TeamInfo(ids.new("team"), organization_id, read_name(name))

    def work(now: int) -> TeamInfo:
        if not Organization.select().where(Organization.id == organization_id).exists():
            raise NotFound(f"There is no organization {organization_id}.")
        _check_free(organization_id, info.name)
        check_quota(Team.select().where(Team.organization == organization_id), MAX_TEAMS, "teams")
        Team.insert(id=info.id, organization=organization_id, name=info.name, created_at=now).execute()
        client_ids.insert(claim, info.id, now)
        _audit("team.create", info, {"name": info.name}, actor, now)
        return info

    return commit(database, control, work, confirm=False)


def list_teams(
    database: Database, organization_id: str = "", part: ListSlice = WHOLE, *, member_id: str = ""
) -> list[TeamInfo]:
    """The teams of an organization, or ("") of all, oldest first; of one member if given."""

    def read() -> list[TeamInfo]:
        query = Team.select().order_by(Team.id)
        if organization_id:
            query = query.where(Team.organization == organization_id)
        if member_id:
            query = query.where(Team.id.in_(TeamMember.select(TeamMember.team).where(TeamMember.member == member_id)))
        rows = list(part.narrow(query, Team.id))
        members: dict[str, list[str]] = {row.id: [] for row in rows}
        links = TeamMember.select().join(Team).order_by(TeamMember.member)
        if organization_id:
            links = links.where(Team.organization == organization_id)
        if part.limit or member_id:
            links = links.where(TeamMember.team.in_(list(members)))
        for link in links:
            members[link.team_id].append(link.member_id)
        return [_info(row, members[row.id]) for row in rows]

    return database.read(read)


def find_team(database: Database, organization_id: str, team_id: str) -> TeamInfo:
    """One team of the organization. NotFound."""
    return database.read(partial(_find, organization_id, team_id))


def rename_team(
    database: Database, control: Control, organization_id: str, team_id: str, name: str, *, actor: str
) -> TeamInfo:
    """Give it another name. NotFound, InvalidRequest (name), Conflict (name taken)."""
    name = read_name(name)

    def work(now: int) -> TeamInfo:
        before = _find(organization_id, team_id)
        if before.name != name:
            _check_free(organization_id, name)
        Team.update(name=name).where(Team.id == team_id).execute()
        _audit("team.rename", before, {"from": before.name, "to": name}, actor, now)
        return _find(organization_id, team_id)

    return commit(database, control, work)


def delete_team(
    database: Database,
    control: Control,
    organization_id: str,
    team_id: str,
    *,
    actor: str,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Take the team away with its access rules; its limits count no more, what was spent stays on record. `check`
    raises within the transaction if `actor` may not end the team. NotFound."""

    def work(now: int) -> None:
        before = _find(organization_id, team_id)
        check()
        rules = AccessRule.delete().where(AccessRule.scope == "team", AccessRule.scope_id == team_id).execute()
        ManagedSettings.delete().where(ManagedSettings.scope_id == team_id).execute()
        TeamMember.delete().where(TeamMember.team == team_id).execute()
        end_roles(scope_id=team_id)
        forget_owner(database, team_id)
        Team.delete().where(Team.id == team_id).execute()
        detail = {"name": before.name, "members": list(before.member_ids), "rules": rules}
        _audit("team.delete", before, detail, actor, now)

    commit(database, control, work)


def set_team_member(
    database: Database,
    control: Control,
    team_id: str,
    member_id: str,
    belongs: bool,
    *,
    actor: str,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Put a member into a team or take them out: its rules and limits hold for their keys' next requests. `check`
    raises within the transaction if `actor` may not do this. NotFound."""

    def work(now: int) -> None:
        is_member = TeamMember.select().where(TeamMember.team == team_id, TeamMember.member == member_id).exists()
        if is_member != belongs:
            check()
        write_team_member(team_id, member_id, belongs, actor=actor, now=now)

    commit(database, control, work)


def write_team_member(team_id: str, member_id: str, belongs: bool, *, actor: str, now: int) -> None:
    """The part of `set_team_member` that runs within a transaction."""
    team = Team.get_or_none(Team.id == team_id)
    member = Member.get_or_none(Member.id == member_id)
    if team is None or member is None or member.organization_id != team.organization_id:
        raise NotFound(f"There is no team {team_id} in the organization of member {member_id}.")
    link = (TeamMember.team == team_id) & (TeamMember.member == member_id)
    TeamMember.delete().where(link).execute()
    if belongs:
        TeamMember.insert(team=team_id, member=member_id).execute()
    else:
        end_roles(member_id=member_id, scope_id=team_id)
    _audit("team.update", _info(team, ()), {"member": member_id, "belongs": belongs}, actor, now)


def mark_limited(organization_id: str, team_id: str, limited: bool) -> None:
    """Store whether callers must count what they spend against the team; within the transaction that sets its limits.
    NotFound."""
    _find(organization_id, team_id)
    Team.update(limited=limited).where(Team.id == team_id).execute()


def _check_free(organization_id: str, name: str) -> None:
    if Team.select().where(Team.organization == organization_id, Team.name == name).exists():
        raise Conflict(f"There is already a team {name}.", code="team_exists")


def _find(organization_id: str, team_id: str) -> TeamInfo:
    row = Team.get_or_none(Team.id == team_id, Team.organization == organization_id)
    if row is None:
        raise NotFound(f"There is no team {team_id} in this organization.")
    links = TeamMember.select().where(TeamMember.team == team_id).order_by(TeamMember.member)
    return _info(row, [link.member_id for link in links])


def _info(row: Team, member_ids: list[str] | tuple[str, ...]) -> TeamInfo:
    return TeamInfo(row.id, row.organization_id, row.name, tuple(member_ids), bool(row.limited))


def _audit(action: str, team: TeamInfo, detail: dict[str, object], actor: str, now: int) -> None:
    audit.append(action, team.id, actor=actor, at_us=now, organization_id=team.organization_id, detail=detail)
