"""Group rules: roles, teams and limits by the groups that an identity provider or provisioning states.

A group without a rule gives nothing, also when its name is that of a role. Where several rules match a person, the
highest role counts, the teams of all, and the spending limits of the matching rule with the smallest `priority`. A rule
that makes owners counts only for groups behind whose statement an owner stands.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import peewee
from msgspec import Struct, field

from gateway import ids
from gateway.accounts import audit, changes
from gateway.accounts.authority import is_owner_now
from gateway.accounts.changes import commit
from gateway.accounts.members import check_role
from gateway.accounts.scoped_roles import check_parts
from gateway.callers.models import Organization, Team
from gateway.callers.permissions import RANKS, Role
from gateway.control.version import Control
from gateway.errors import Conflict, InvalidRequest, NotFound
from gateway.store.database import Base, Database, TimeField

# The tables of group rules: the rules, the known groups of members, and what the rules gave each member.


class GroupRuleRow(Base):
    """The grants for members of the group `name`. `role` "" gives none, `teams` is a JSON list of ids, `parts` one of
    teams and projects in which they have a role, `limits` a JSON object of spending limits ({}: none), `set_by` the
    actor of the last change. `source` is the only one whose groups count, "" for all. `by_owner`: an owner wrote it, so
    that it concerns owners too."""

    id = peewee.CharField(40, primary_key=True)
    organization = peewee.CharField(40)
    name = peewee.CharField(255)
    role = peewee.CharField(16, default="")
    teams = peewee.TextField(default="[]")
    parts = peewee.TextField(default="[]")
    limits = peewee.TextField(default="{}")
    priority = peewee.IntegerField(default=100)
    source = peewee.CharField(80, default="")
    by_owner = peewee.BooleanField(default=False)
    set_by = peewee.CharField(80)
    created_at = TimeField()
    updated_at = TimeField()

    class Meta:
        table_name = "group_rule"


class MemberGroup(Base):
    """A group that `source` (an identity provider, or provisioning) stated for a member. `trusted`: an owner stands
    behind the statement, so that it may make the member an owner."""

    member = peewee.CharField(40)
    source = peewee.CharField(80)
    name = peewee.CharField(255)
    organization = peewee.CharField(40)
    trusted = peewee.BooleanField(default=False)

    class Meta:
        table_name = "member_group"
        primary_key = peewee.CompositeKey("member", "source", "name")


class GroupGrant(Base):
    """Grants of the rules to a member, so that they can be taken back. `stale`: a rule of one of the member's groups
    has changed since."""

    member = peewee.CharField(40, primary_key=True)
    role = peewee.CharField(16, default="")
    teams = peewee.TextField(default="[]")
    parts = peewee.TextField(default="[]")
    limits = peewee.TextField(default="{}")
    stale = peewee.BooleanField(default=False, index=True)

    class Meta:
        table_name = "group_grant"


MAX_RULES = 500  # of an organization
MAX_GROUPS = 2000  # of one person from one source; further ones are ignored
MAX_RULE_TEAMS = 50
MAX_GROUP_LENGTH = 255
FIRST_PRIORITY, LAST_PRIORITY = 1, 10_000
NORMAL_PRIORITY = 100
SCIM_SOURCE = "scim"  # the source of groups that provisioning states
# Names of groups, and whether an owner stands behind the statement that the person is in them.
GroupNames = Mapping[str, bool]


class StatedGroup(NamedTuple):
    """A group that a source states for a person; `trusted`: an owner stands behind the statement."""

    name: str
    source: str
    trusted: bool


class RuleDraft(Struct, frozen=True):
    """The content of a rule. `group` is compared exactly, and counts from `source` alone ("": any); `role` "" gives
    none; `part_ids` are teams that the members lead and projects that they administer; `limits` are spending limits as
    `admin.group_grants` writes them, {} gives none."""

    group: str
    role: str = ""
    team_ids: tuple[str, ...] = ()
    limits: Mapping[str, Any] = field(default_factory=dict)
    priority: int = NORMAL_PRIORITY
    source: str = ""
    part_ids: tuple[str, ...] = ()


class GroupRule(Struct, frozen=True):
    """A stored rule. It sets spending limits with the rank of `set_by`, the actor of its last change. `by_owner`: that
    was an owner, so that the rule concerns owners too."""

    id: str
    organization_id: str
    group: str
    role: str
    team_ids: tuple[str, ...]
    limits: Mapping[str, Any]
    priority: int
    set_by: str
    created_at_us: int
    source: str = ""
    by_owner: bool = False
    part_ids: tuple[str, ...] = ()

    def matches(self, group: StatedGroup) -> bool:
        """Return whether the rule is for this group."""
        return self.group == group.name and self.source in ("", group.source)


class Entitlement(Struct, frozen=True):
    """The grants of the rules to a person. `limits` {} stands for none; `limits_set_by` is the actor of the rule with
    them. `matched` is true if there is a rule for at least one of the person's groups."""

    role: str = ""
    team_ids: tuple[str, ...] = ()
    part_ids: tuple[str, ...] = ()
    limits: Mapping[str, Any] = field(default_factory=dict)
    limits_set_by: str = ""
    matched: bool = False


def entitle(rules: Iterable[GroupRule], groups: Iterable[StatedGroup], current: Role = "developer") -> Entitlement:
    """Return what `rules` give a person with these groups. `current` is the person's role: an owner gets and loses
    nothing by rules of admins, or by groups behind which no owner stands."""
    stated: dict[str, list[StatedGroup]] = {}
    is_owner = current == "owner"
    for group in groups:
        if group.trusted or not is_owner:
            stated.setdefault(group.name, []).append(group)
    rules = [rule for rule in rules if rule.by_owner or not is_owner]
    found = [(rule, [group for group in stated.get(rule.group, ()) if rule.matches(group)]) for rule in rules]
    matching = sorted((rule for rule, same in found if same), key=_order)
    trusted = {rule.id for rule, same in found if any(group.trusted for group in same)}
    roles = (rule.role for rule in matching if rule.role and (rule.role != "owner" or rule.id in trusted))
    role = max(roles, key=RANKS.__getitem__, default="")
    teams = tuple(dict.fromkeys(team for rule in matching for team in rule.team_ids))
    parts = tuple(dict.fromkeys(part for rule in matching for part in rule.part_ids))
    limiting = next((rule for rule in matching if rule.limits), None)
    if limiting is None:
        return Entitlement(role, teams, parts, matched=bool(matching))
    return Entitlement(role, teams, parts, limiting.limits, limiting.set_by, matched=True)


def _order(rule: GroupRule) -> tuple[int, str]:
    return rule.priority, rule.id


def clean_groups(groups: Iterable[object]) -> list[str]:
    """Return group names as they are stored: trimmed, without doubles, empty and too long ones, at most MAX_GROUPS."""
    names = (name.replace("\0", "").strip() for name in groups if isinstance(name, str))
    unique = dict.fromkeys(name for name in names if 1 <= len(name) <= MAX_GROUP_LENGTH)
    return list(unique)[:MAX_GROUPS]


def clean_stated(groups: Mapping[Any, bool]) -> dict[str, bool]:
    """Return groups as `clean_groups` does; a name that is stated twice is trusted if either statement is."""
    names = clean_groups(groups)
    trusted = set(clean_groups(name for name, is_trusted in groups.items() if is_trusted))
    return {name: name in trusted for name in names}


def list_rules(database: Database, organization_id: str) -> list[GroupRule]:
    """Return the rules of an organization in the order in which their limits count."""
    return database.read(partial(load_rules, organization_id))


def load_rules(organization_id: str, groups: Sequence[str] | None = None) -> list[GroupRule]:
    """Return the rules of an organization, or those for `groups`. Within a read or write."""
    query = GroupRuleRow.select().where(GroupRuleRow.organization == organization_id)
    rules = [_info(row) for row in query.order_by(GroupRuleRow.priority, GroupRuleRow.id)]
    if groups is None:
        return rules
    names = set(groups)
    return [rule for rule in rules if rule.group in names]


def find_rule(database: Database, organization_id: str, rule_id: str) -> GroupRule:
    """Return one rule. Raises NotFound."""
    return database.read(partial(_find, organization_id, rule_id))


def create_rule(
    database: Database, control: Control, organization_id: str, draft: RuleDraft, *, actor: str
) -> GroupRule:
    """Add a rule. Raises InvalidRequest, NotFound (organization, team) or Conflict (the group has a rule)."""
    rule_id = ids.new("grule")
    draft = _read(draft)

    def work(now: int) -> GroupRule:
        if not Organization.select().where(Organization.id == organization_id).exists():
            raise NotFound(f"There is no organization {organization_id}.")
        rows = GroupRuleRow.select().where(GroupRuleRow.organization == organization_id)
        changes.check_quota(rows, MAX_RULES, "group rules")
        _check(organization_id, draft, "")
        GroupRuleRow.insert(
            id=rule_id, organization=organization_id, created_at=now, **_values(organization_id, draft, actor, now)
        ).execute()
        mark_stale(organization_id, draft.group)
        return _audited("group_rule.create", _find(organization_id, rule_id), actor, now)

    return commit(database, control, work, confirm=False)


def update_rule(
    database: Database, control: Control, organization_id: str, rule_id: str, draft: RuleDraft, *, actor: str
) -> GroupRule:
    """Replace the content of a rule. Raises InvalidRequest, NotFound (rule, team) or Conflict (the group has a
    rule)."""
    draft = _read(draft)

    def work(now: int) -> GroupRule:
        before = _find(organization_id, rule_id)
        _check(organization_id, draft, rule_id)
        GroupRuleRow.update(**_values(organization_id, draft, actor, now)).where(GroupRuleRow.id == rule_id).execute()
        mark_stale(organization_id, before.group)
        mark_stale(organization_id, draft.group)
        return _audited("group_rule.update", _find(organization_id, rule_id), actor, now)

    return commit(database, control, work, confirm=False)


def delete_rule(database: Database, control: Control, organization_id: str, rule_id: str, *, actor: str) -> None:
    """Delete a rule; what it gave is taken back. Raises NotFound."""

    def work(now: int) -> None:
        before = _find(organization_id, rule_id)
        GroupRuleRow.delete().where(GroupRuleRow.id == rule_id).execute()
        mark_stale(organization_id, before.group)
        _audited("group_rule.delete", before, actor, now)

    commit(database, control, work, confirm=False)


def mark_stale(organization_id: str, group: str) -> None:
    """Mark the members of a group: their grants must be computed again. Within a write."""
    members = MemberGroup.select(MemberGroup.member).where(
        MemberGroup.organization == organization_id, MemberGroup.name == group
    )
    GroupGrant.update(stale=True).where(GroupGrant.member.in_(members)).execute()


def groups_of(member_id: str) -> list[StatedGroup]:
    """Return the groups of a member from all sources. Within a read or write."""
    rows = MemberGroup.select().where(MemberGroup.member == member_id)
    return [StatedGroup(row.name, row.source, bool(row.trusted)) for row in rows]


def distrust(source: str) -> None:
    """Take the trust from all groups of a source, because no owner stands behind it any more. Within a write."""
    rows = (MemberGroup.source == source) & (MemberGroup.trusted == True)  # noqa: E712
    members = [row.member for row in MemberGroup.select(MemberGroup.member).where(rows).distinct()]
    MemberGroup.update(trusted=False).where(rows).execute()
    for start in range(0, len(members), 100):
        GroupGrant.update(stale=True).where(GroupGrant.member.in_(members[start : start + 100])).execute()


def makes_owners(organization_id: str, group: str, source: str) -> bool:
    """Return whether a rule makes the members of a group owners. Within a read or write."""
    rules = load_rules(organization_id, (group,))
    return any(rule.role == "owner" and rule.matches(StatedGroup(group, source, True)) for rule in rules)


def replace_groups(organization_id: str, member_id: str, source: str, groups: GroupNames) -> None:
    """Store the groups that one source states for a member, in place of its earlier ones. Within a write."""
    MemberGroup.delete().where(MemberGroup.member == member_id, MemberGroup.source == source).execute()
    same = {"member": member_id, "source": source, "organization": organization_id}
    rows = [{**same, "name": name, "trusted": trusted} for name, trusted in groups.items()]
    for start in range(0, len(rows), 100):
        MemberGroup.insert_many(rows[start : start + 100]).execute()


def _read(draft: RuleDraft) -> RuleDraft:
    group = draft.group.strip()
    if not 1 <= len(group) <= MAX_GROUP_LENGTH:
        raise InvalidRequest(f"group needs 1 to {MAX_GROUP_LENGTH} characters.", param="group")
    if draft.role:
        check_role(draft.role)
    teams = tuple(dict.fromkeys(draft.team_ids))
    if len(teams) > MAX_RULE_TEAMS:
        raise InvalidRequest(f"A rule names at most {MAX_RULE_TEAMS} teams.", param="teamIds")
    parts = tuple(dict.fromkeys(draft.part_ids))
    if len(parts) > MAX_RULE_TEAMS:
        raise InvalidRequest(f"A rule gives roles in at most {MAX_RULE_TEAMS} teams and projects.", param="roleIn")
    if not FIRST_PRIORITY <= draft.priority <= LAST_PRIORITY:
        raise InvalidRequest(f"priority must be {FIRST_PRIORITY} to {LAST_PRIORITY}.", param="priority")
    return RuleDraft(group, draft.role, teams, draft.limits, draft.priority, draft.source, parts)


def check_teams(organization_id: str, team_ids: Sequence[str]) -> None:
    """Raise NotFound for a team of another organization, within a read or a transaction."""
    teams = Team.select(Team.id).where(Team.organization == organization_id, Team.id.in_(team_ids))
    missing = set(team_ids) - {row.id for row in teams}
    if missing:
        raise NotFound(f"There is no team {min(missing)[:80]} in this organization.")


def _check(organization_id: str, draft: RuleDraft, rule_id: str) -> None:
    check_teams(organization_id, draft.team_ids)
    check_parts(organization_id, draft.part_ids)
    same = GroupRuleRow.select().where(
        GroupRuleRow.organization == organization_id, GroupRuleRow.name == draft.group, GroupRuleRow.id != rule_id
    )
    if same.exists():
        raise Conflict(f"There is already a rule for the group {draft.group}.", code="group_rule_exists")


def _values(organization_id: str, draft: RuleDraft, actor: str, now: int) -> dict[str, Any]:
    return {
        "by_owner": is_owner_now(organization_id, actor),
        "name": draft.group,
        "role": draft.role,
        "teams": json.dumps(list(draft.team_ids)),
        "parts": json.dumps(list(draft.part_ids)),
        "limits": json.dumps(dict(draft.limits), sort_keys=True),
        "priority": draft.priority,
        "source": draft.source,
        "set_by": actor,
        "updated_at": now,
    }


def _find(organization_id: str, rule_id: str) -> GroupRule:
    row = GroupRuleRow.get_or_none(GroupRuleRow.id == rule_id, GroupRuleRow.organization == organization_id)
    if row is None:
        raise NotFound(f"There is no group rule {rule_id} in this organization.")
    return _info(row)


def _audited(action: str, rule: GroupRule, actor: str, now: int) -> GroupRule:
    detail = {
        "group": rule.group,
        "role": rule.role,
        "teams": list(rule.team_ids),
        "parts": list(rule.part_ids),
        "limits": dict(rule.limits),
        "priority": rule.priority,
        "source": rule.source,
    }
    audit.append(action, rule.id, actor=actor, at_us=now, organization_id=rule.organization_id, detail=detail)
    return rule


def _info(row: GroupRuleRow) -> GroupRule:
    return GroupRule(
        row.id,
        row.organization,
        row.name,
        row.role,
        tuple(json.loads(row.teams)),
        json.loads(row.limits),
        row.priority,
        row.set_by,
        row.created_at,
        row.source,
        bool(row.by_owner),
        tuple(json.loads(row.parts)),
    )
