"""The caller that a new key of a member would have: for reports on what the member may call without a key."""

from gateway.accounts.members import MemberInfo
from gateway.accounts.organizations import find_organization
from gateway.accounts.projects import ProjectInfo
from gateway.accounts.rules import list_rules
from gateway.accounts.teams import list_teams
from gateway.callers.authentication import Caller
from gateway.callers.compliance import read_policy
from gateway.callers.rule_values import compile_levels
from gateway.store.database import Database


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
