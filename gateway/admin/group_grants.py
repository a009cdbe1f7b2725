"""Grants of group rules: a member gets what the rules say for their groups, and loses what they no longer say.

Manual grants stay: the role of an owner, teams that a person added, and limits that a rule did not set.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from gateway.accounts import audit, group_rules, members
from gateway.accounts.changes import commit
from gateway.accounts.group_rules import Entitlement, GroupGrant, GroupNames, GroupRule, MemberGroup, StatedGroup
from gateway.accounts.members import MemberInfo
from gateway.accounts.scoped_roles import end_roles, find_existing, write_role
from gateway.admin.funding import Funding
from gateway.callers.models import Member, Organization, ScopedRole, Team, TeamMember
from gateway.callers.permissions import Role
from gateway.control.version import Control
from gateway.errors import Forbidden, NotFound
from gateway.limits.budgets import Limits
from gateway.limits.models import MEMBER
from gateway.limits.periods import read_period
from gateway.runtime.loop_turns import ShouldContinue
from gateway.store.database import Database

ACTOR = "group_rules"  # of audit entries when the rules were changed
BATCH_SIZE = 50
ROLE_WITHOUT_RULE: Role = "developer"
ANY_STALE = "SELECT 1 FROM group_grant WHERE stale = ? LIMIT 1"


class GrantPlan(Struct, frozen=True):
    """The changes that a member's groups require. `role` and `limits` are None if they stay. `given` and `ended` are
    the teams and projects in which a role begins or ends."""

    member: Member
    groups_changed: bool
    role: Role | None
    joined: tuple[str, ...]
    left: tuple[str, ...]
    given: tuple[str, ...]
    ended: tuple[str, ...]
    limits: Limits | None
    limits_set_by: str
    granted: dict[str, str]
    recorded: bool  # `granted` is stored already

    @property
    def is_empty(self) -> bool:
        changes = (self.groups_changed, self.role, self.joined, self.left, self.given, self.ended, self.limits)
        return self.recorded and not any(changes)


class PreviewedGrant(Struct, frozen=True):
    """The changes of a member by changed rules. `role` and `limits` are None if they stay; `joined` and
    `left` are ids of teams."""

    member: MemberInfo
    role: Role | None
    joined: tuple[str, ...]
    left: tuple[str, ...]
    given: tuple[str, ...]
    ended: tuple[str, ...]
    limits: Limits | None


class GroupGrants:
    """Applies group rules to members. Changes are in force on every worker on return, and audited."""

    def __init__(self, database: Database, control: Control, funding: Funding) -> None:
        self._database = database
        self._control = control
        self._funding = funding

    def set_groups(self, organization_id: str, member_id: str, source: str, groups: GroupNames, *, actor: str) -> None:
        """Store the groups that `source` states for a member, and apply the rules for the groups of all sources.

        `source` is the id of an identity provider or of provisioning; its earlier groups of the member are replaced.
        Names that are too long or no text are ignored. Raises NotFound (member).
        """
        names = group_rules.clean_stated(groups)
        plan = self._database.read(partial(self._plan, organization_id, member_id, source, names))
        if not plan.is_empty:
            work = partial(self.write_groups, organization_id, member_id, source, names, actor=actor)
            commit(self._database, self._control, lambda now: work(now=now))

    def write_groups(
        self, organization_id: str, member_id: str, source: str, groups: GroupNames, *, actor: str, now: int
    ) -> None:
        """The part of `set_groups` that runs within a transaction, of which the caller raises the control version."""
        names = group_rules.clean_stated(groups)
        plan = self._plan(organization_id, member_id, source, names)
        if plan.groups_changed:
            group_rules.replace_groups(organization_id, member_id, source, names)
        self._write(plan, actor, now)

    def refresh(self, organization_id: str = "", maximum: int = BATCH_SIZE) -> int:
        """Apply changed rules to at most `maximum` members of one or ("") all organizations; how many there were."""

        def list_stale() -> list[tuple[str, str]]:
            rows = Member.select(Member.id, Member.organization).join(GroupGrant, on=GroupGrant.member == Member.id)
            rows = rows.where(GroupGrant.stale == True).order_by(Member.id).limit(maximum)  # noqa: E712
            if organization_id:
                rows = rows.where(Member.organization == organization_id)
            return [(row.id, row.organization_id) for row in rows]

        stale = self._database.read(list_stale)
        if stale:
            commit(self._database, self._control, partial(self._refresh, stale))
        return len(stale)

    def refresh_all(self, should_continue: ShouldContinue) -> None:
        """Apply changed rules to all members they concern; the recurring job."""
        # A query in plain SQL, because this runs every few seconds and peewee takes 8,000 bytecodes to write the other.
        while self._database.query_row(ANY_STALE, (True,)) and self.refresh() and should_continue():
            pass

    def preview(
        self, organization_id: str, rules: Sequence[GroupRule], groups: Collection[str], maximum: int
    ) -> tuple[int, list[PreviewedGrant]]:
        """Return how many members are in these groups, and what `rules`, in place of the stored ones, would change for
        at most the first `maximum` of them."""

        def read() -> tuple[int, list[PreviewedGrant]]:
            known = MemberGroup.select(MemberGroup.member).where(
                MemberGroup.organization == organization_id, MemberGroup.name.in_(list(groups))
            )
            member_ids = sorted({row.member for row in known})
            people = {member.id: member for member in members.load_members(member_ids[:maximum])}
            plans = [self._plan(organization_id, member_id, "", None, rules) for member_id in people]
            return len(member_ids), [
                PreviewedGrant(
                    people[plan.member.id], plan.role, plan.joined, plan.left, plan.given, plan.ended, plan.limits
                )
                for plan in plans
                if plan.role or plan.joined or plan.left or plan.given or plan.ended or plan.limits is not None
            ]

        return self._database.report(read)

    def _refresh(self, stale: list[tuple[str, str]], now: int) -> None:
        for member_id, organization_id in stale:
            self._write(self._plan(organization_id, member_id, "", None), ACTOR, now)

    def _plan(
        self,
        organization_id: str,
        member_id: str,
        source: str,
        groups: GroupNames | None,
        rules: Sequence[GroupRule] | None = None,
    ) -> GrantPlan:
        """Return the changes for a member whose groups from `source` are `groups`, None: as stored. `rules` are those
        of the organization, None: as stored."""
        member = Member.get_or_none(Member.id == member_id, Member.organization == organization_id)
        if member is None:
            raise NotFound(f"There is no member {member_id} in this organization.")
        stored = stated = group_rules.groups_of(member_id)
        if groups is not None:
            own = [StatedGroup(name, source, trusted) for name, trusted in groups.items()]
            stated = [group for group in stored if group.source != source] + own
        if rules is None:
            rules = group_rules.load_rules(organization_id, sorted({group.name for group in stated}))
        entitlement = group_rules.entitle(rules, stated, member.role)
        row = GroupGrant.get_or_none(GroupGrant.member == member_id)
        grant = row or GroupGrant(member=member_id)
        role, granted_role = _plan_role(member, entitlement, grant.role)
        joined, left, granted_teams = _plan_teams(member, entitlement, json.loads(grant.teams))
        given, ended, granted_parts = _plan_parts(member, entitlement, json.loads(grant.parts), left)
        limits, set_by, granted_limits = self._plan_limits(member, entitlement, json.loads(grant.limits))
        granted = {
            "role": granted_role,
            "teams": json.dumps(granted_teams),
            "parts": json.dumps(granted_parts),
            "limits": json.dumps(granted_limits, sort_keys=True),
        }
        recorded = row is not None and not row.stale and granted == {name: getattr(row, name) for name in granted}
        groups_changed = set(stored) != set(stated)
        return GrantPlan(member, groups_changed, role, joined, left, given, ended, limits, set_by, granted, recorded)

    def _plan_limits(
        self, member: Member, entitlement: Entitlement, granted: dict[str, Any]
    ) -> tuple[Limits | None, str, dict[str, Any]]:
        """Return the limits to set (None: unchanged), the person who set them in a rule, and what is then granted."""
        if entitlement.limits:
            wanted = read_limits(entitlement.limits)
            set_by = entitlement.limits_set_by
            granted = {**entitlement.limits, "set_by": set_by}
        elif granted:
            wanted = Limits()
            set_by = granted["set_by"]
            granted = {}
        else:
            return None, "", {}
        if wanted == self._funding.budgets.status(member.id).limits:
            return None, "", granted
        return wanted, set_by, granted

    def _write(self, plan: GrantPlan, actor: str, now: int) -> None:
        member = plan.member
        if plan.role:
            Member.update(role=plan.role, updated_at=now).where(Member.id == member.id).execute()
            detail: dict[str, object] = {"role": plan.role, "status": member.status, "by": "group rules"}
            _audit("member.update", member.id, member.organization_id, detail, actor, now)
        for team in plan.left:
            TeamMember.delete().where(TeamMember.team == team, TeamMember.member == member.id).execute()
            end_roles(member_id=member.id, scope_id=team)
            _audit("team.update", team, member.organization_id, {"member": member.id, "belongs": False}, actor, now)
        for team in plan.joined:
            TeamMember.insert(team=team, member=member.id).execute()
            _audit("team.update", team, member.organization_id, {"member": member.id, "belongs": True}, actor, now)
        for scope_id in plan.ended:
            write_role(scope_id, member.id, False, actor=actor, now=now)
        for scope_id in plan.given:
            write_role(scope_id, member.id, True, actor=actor, now=now)
        if plan.limits is not None:
            self._write_limits(plan, plan.limits, actor, now)
        values = {**plan.granted, "stale": False}
        GroupGrant.insert(member=member.id, **values).on_conflict(
            conflict_target=[GroupGrant.member], update=values
        ).execute()

    def _write_limits(self, plan: GrantPlan, limits: Limits, actor: str, now: int) -> None:
        """Set the limits, unless a person of a higher rank than the author of the rule set lower ones."""
        member = plan.member

        def edit(before: Limits) -> Limits:
            return Limits(limits.total_nusd, limits.period_nusd, limits.period, before.alert_at, before.reservation)

        try:
            self._funding.write_limits(
                MEMBER, member.id, member.organization_id, edit, setter=plan.limits_set_by, actor=actor, now=now
            )
        except Forbidden:
            pass


def _plan_role(member: Member, entitlement: Entitlement, granted: str) -> tuple[Role | None, str]:
    """Return the new role (None: unchanged), and the role that the rules have then given."""
    is_given_by_hand = member.role == "owner" and granted != "owner"
    organization = Organization.get_by_id(member.organization_id)
    if is_given_by_hand or organization.break_glass == member.id:
        return None, ""
    if entitlement.role:
        role: Any = entitlement.role
    elif granted:
        role = ROLE_WITHOUT_RULE
    else:
        return None, ""
    if member.role == "owner" and role != "owner" and not _has_other_owner(member):
        return None, granted
    return (role if role != member.role else None), entitlement.role


def _has_other_owner(member: Member) -> bool:
    owners = Member.select().where(
        Member.organization == member.organization_id, Member.role == "owner", Member.status == "active"
    )
    return owners.where(Member.id != member.id).exists()


def _plan_teams(
    member: Member, entitlement: Entitlement, granted: list[str]
) -> tuple[tuple[str, ...], tuple[str, ...], list[str]]:
    """Return the teams to join, those to leave, and those that the rules have then given."""
    teams = Team.select(Team.id).where(Team.organization == member.organization_id, Team.id.in_(entitlement.team_ids))
    entitled = {row.id for row in teams}
    current = {row.team_id for row in TeamMember.select().where(TeamMember.member == member.id)}
    joined = tuple(sorted(entitled - current))
    left = tuple(sorted((set(granted) - entitled) & current))
    return joined, left, sorted((set(granted) & entitled & current) | set(joined))


def _plan_parts(
    member: Member, entitlement: Entitlement, granted: list[str], left: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...], list[str]]:
    """Return the teams and projects in which a role begins, those in which it ends, and those that the rules have then
    given. `left` are teams that the member leaves, which ends the role there."""
    entitled = find_existing(member.organization_id, entitlement.part_ids) if member.status == "active" else set()
    current = {row.scope_id for row in ScopedRole.select().where(ScopedRole.member == member.id)}.difference(left)
    given = tuple(sorted(entitled - current))
    ended = tuple(sorted((set(granted) - entitled) & current))
    return given, ended, sorted((set(granted) & entitled & current) | set(given))


def store_limits(limits: Limits) -> dict[str, Any]:
    """Return the limits of a rule as stored in it; {} for none."""
    values = {
        "total_nusd": limits.total_nusd,
        "period_nusd": limits.period_nusd,
        "period": str(limits.period) if limits.period else None,
    }
    return {name: value for name, value in values.items() if value is not None}


def read_limits(stored: Mapping[str, Any]) -> Limits:
    """Return the limits that `store_limits` wrote."""
    period = stored.get("period")
    return Limits(stored.get("total_nusd"), stored.get("period_nusd"), read_period(period) if period else None)


def _audit(action: str, subject: str, organization_id: str, detail: dict[str, object], actor: str, now: int) -> None:
    audit.append(action, subject, actor=actor, at_us=now, organization_id=organization_id, detail=detail)
