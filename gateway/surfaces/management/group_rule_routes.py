"""`/orgs/…/group-rules`: what people get for the groups that an identity provider or provisioning states."""

from typing import Any

from marshmallow import fields
from msgspec.structs import asdict

from gateway.accounts import group_rules
from gateway.accounts.group_rules import (
    FIRST_PRIORITY,
    LAST_PRIORITY,
    MAX_GROUP_LENGTH,
    MAX_RULE_TEAMS,
    NORMAL_PRIORITY,
    GroupRule,
    RuleDraft,
)
from gateway.accounts.scoped_roles import check_parts
from gateway.admin.group_grants import PreviewedGrant, store_limits
from gateway.admin.group_grants import read_limits as stored_limits
from gateway.callers.permissions import ROLES
from gateway.errors import InvalidRequest
from gateway.surfaces.management.access_groups import AccessGroup, Values, in_organization
from gateway.surfaces.management.limit_routes import FIELDS, LimitFields, read_limits
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.visitors.validation_schemas import (
    NameList,
    OneOf,
    StrictBody,
    TextField,
    WholeNumber,
    describe_field,
)
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.answer_structs import Answer, Time, Usd
from gateway.surfaces.web.http import Operation

TAG = "Single sign-on"
PREVIEWED_MEMBERS = 500
INLINE_MEMBERS = 200  # members whose grants are computed again before the answer; the others follow in seconds


class RuleLimits(LimitFields, StrictBody):
    pass


GROUP = "The name of the group, compared exactly."
ROLE = "The role of its members."
TEAM = "Ids of teams that its members join."
ROLE_IN = "Ids of teams that its members lead, and of projects of which they are admins."
LIMITS = "Spending limits of each member, such as usageLimit."
PRIORITY = "Of several matching rules, the limits of the smallest count."
SOURCE = 'The only source whose groups count: the id of an identity provider, "scim" for provisioning, or "" for all.'


class NewGroupRule(StrictBody):
    """`limits` are spending limits of each member of the group. Where several rules match, the highest role counts, all
    teams, and the limits of the rule with the smallest `priority`."""

    group = TextField(1, MAX_GROUP_LENGTH, required=True, about=GROUP)
    source = TextField(0, 80, load_default="", about=SOURCE + " Rules that make owners need one.", example="scim")
    role = OneOf(ROLES, allow_none=True, load_default=None, about=ROLE)
    teamIds = NameList(MAX_RULE_TEAMS, 40, load_default=list, about=TEAM)
    roleIn = NameList(MAX_RULE_TEAMS, 40, load_default=list, about=ROLE_IN)
    limits = fields.Nested(RuleLimits, load_default=dict, metadata=describe_field(LIMITS))
    priority = WholeNumber(FIRST_PRIORITY, LAST_PRIORITY, load_default=NORMAL_PRIORITY, about=PRIORITY)


class PreviewedRule(NewGroupRule):
    """`groupRuleId`: the rule that this one would replace."""

    groupRuleId = TextField(0, 40, load_default="", about="The rule that this one would replace.")


class GroupRuleChange(StrictBody):
    """Absent members stay unchanged; `limits` replaces all limits."""

    group = TextField(1, MAX_GROUP_LENGTH, about=GROUP)
    source = TextField(0, 80, about=SOURCE, example="scim")
    role = OneOf(ROLES, allow_none=True, about=ROLE)
    teamIds = NameList(MAX_RULE_TEAMS, 40, about=TEAM)
    roleIn = NameList(MAX_RULE_TEAMS, 40, about=ROLE_IN)
    limits = fields.Nested(RuleLimits, metadata=describe_field(LIMITS))
    priority = WholeNumber(FIRST_PRIORITY, LAST_PRIORITY, about=PRIORITY)


class PreviewedPersonAnswer(Answer):
    """A member and what would change: `role` is null if it stays, `limits_change` is true if spending limits would."""

    member_id: str
    email: str
    name: str
    role_before: str
    role: str | None
    joined_team_ids: list[str]
    left_team_ids: list[str]
    role_in_added: list[str]
    role_in_removed: list[str]
    limits_change: bool


class RulePreviewAnswer(Answer):
    """`members_of_group` are known to be in the group; people who sign in later are not. `complete` is false if there
    are more of them than were compared."""

    members_of_group: int
    complete: bool
    people: list[PreviewedPersonAnswer]


class GroupRuleAnswer(Answer):
    columns = ("id", "group", "source", "role", "priority")
    id: str
    organization_id: str
    group: str
    source: str
    role: str | None
    team_ids: list[str]
    role_in: list[str]
    usage_limit: Usd | None
    period_usage_limit: Usd | None
    period: str | None
    priority: int
    created_at: Time


def _find_rule(visitor: Visitor, values: Values) -> GroupRule:
    organization_id = values["organization_id"]
    visitor.permitted(organization_id, "provisioning:write")
    return group_rules.find_rule(visitor.services.store.database, organization_id, values["group_rule_id"])


RULE_MANAGER = AccessGroup(
    "provisioning:write", "For owners and admins; only an owner changes a rule that makes owners.", _find_rule
)


def list_rules(call: ManagedCall[str]) -> list[GroupRuleAnswer]:
    """The rules in the order in which their limits count."""
    return [_show(rule) for rule in group_rules.list_rules(call.database, call.subject)]


def preview(call: ManagedCall[str]) -> RulePreviewAnswer:
    """Show whom a rule would change, without writing it."""
    draft = _read_new(call)
    rules = group_rules.list_rules(call.database, call.subject)
    call.database.read(lambda: group_rules.check_teams(call.subject, draft.team_ids))
    call.database.read(lambda: check_parts(call.subject, draft.part_ids))
    replaced = call.fields["groupRuleId"]
    if replaced:
        group_rules.find_rule(call.database, call.subject, replaced)
    groups = {draft.group, *(rule.group for rule in rules if rule.id == replaced)}
    rules = [rule for rule in rules if rule.id != replaced and rule.group != draft.group]
    by_owner = call.visitor.authority(call.visitor.member(call.subject)).covers("owner")
    new = GroupRule("new", call.subject, **asdict(draft), set_by=call.actor, created_at_us=0, by_owner=by_owner)
    rules.append(new)
    total, people = call.management.group_grants.preview(call.subject, rules, groups, PREVIEWED_MEMBERS)
    return RulePreviewAnswer(total, total <= PREVIEWED_MEMBERS, [_show_person(person) for person in people])


def create(call: ManagedCall[str]) -> GroupRuleAnswer:
    """Add a rule for a group. It applies at once to members with known groups, to others at their next sign-in."""
    draft = _read_new(call)
    rule = group_rules.create_rule(*call.stores, call.subject, draft, actor=call.actor)
    return _applied(call, rule)


def update(call: ManagedCall[GroupRule]) -> GroupRuleAnswer:
    """Change a rule. It applies to the members of the group at once."""
    before = call.subject
    content = call.fields
    _check_owner(call, before.organization_id, before.role)
    _check_owner(call, before.organization_id, content.get("role"))
    draft = RuleDraft(
        content.get("group", before.group),
        content.get("role", before.role) or "",
        tuple(content.get("teamIds", before.team_ids)),
        _read_limits(content["limits"]) if "limits" in content else before.limits,
        content.get("priority", before.priority),
        content.get("source", before.source),
        tuple(content.get("roleIn", before.part_ids)),
    )
    _check_source(call, before.organization_id, draft)
    rule = group_rules.update_rule(*call.stores, before.organization_id, before.id, draft, actor=call.actor)
    return _applied(call, rule)


def delete(call: ManagedCall[GroupRule]) -> None:
    """Delete a rule; the members of the group lose what it gave."""
    before = call.subject
    _check_owner(call, before.organization_id, before.role)
    group_rules.delete_rule(*call.stores, before.organization_id, before.id, actor=call.actor)
    call.management.group_grants.refresh(before.organization_id, INLINE_MEMBERS)


def _read_new(call: ManagedCall[str]) -> RuleDraft:
    content = call.fields
    _check_owner(call, call.subject, content["role"])
    draft = RuleDraft(
        content["group"].strip(),
        content["role"] or "",
        tuple(content["teamIds"]),
        _read_limits(content["limits"]),
        content["priority"],
        content["source"],
        tuple(content["roleIn"]),
    )
    _check_source(call, call.subject, draft)
    return draft


def _check_source(call: ManagedCall[Any], organization_id: str, draft: RuleDraft) -> None:
    """Raise InvalidRequest for an unknown source, or for a rule that makes owners of groups from any source."""
    providers = call.services.sso.service.providers
    known = [provider for provider in providers.configured if organization_id in provider.organizations]
    known += providers.list_providers(organization_id)
    sources = {"", group_rules.SCIM_SOURCE, *(provider.id for provider in known)}
    if draft.source not in sources:
        text = 'source is the id of an identity provider of the organization, "scim" for provisioning, or "" for all.'
        raise InvalidRequest(text, param="source")
    if draft.role == "owner" and not draft.source:
        text = "A rule that makes owners names the source of the group: an identity provider, or scim."
        raise InvalidRequest(text, param="source")


def _check_owner(call: ManagedCall[Any], organization_id: str, role: str | None) -> None:
    if role:
        call.visitor.authority(call.visitor.member(organization_id)).check(role)


def _read_limits(content: dict[str, Any]) -> dict[str, Any]:
    given = {name: content.get(name) for name in FIELDS}
    return store_limits(read_limits({name: value for name, value in given.items() if value is not None}).checked())


def _applied(call: ManagedCall[Any], rule: GroupRule) -> GroupRuleAnswer:
    call.management.group_grants.refresh(rule.organization_id, INLINE_MEMBERS)
    return _show(rule)


def _show_person(person: PreviewedGrant) -> PreviewedPersonAnswer:
    member = person.member
    return PreviewedPersonAnswer(
        member.id,
        member.email,
        member.name,
        member.role,
        person.role,
        list(person.joined),
        list(person.left),
        list(person.given),
        list(person.ended),
        person.limits is not None,
    )


def _show(rule: GroupRule) -> GroupRuleAnswer:
    limits = stored_limits(rule.limits)
    return GroupRuleAnswer.of(
        rule,
        role=rule.role or None,
        team_ids=list(rule.team_ids),
        role_in=list(rule.part_ids),
        usage_limit=limits.total_nusd,
        period_usage_limit=limits.period_nusd,
        period=str(limits.period) if limits.period else None,
    )


RULES = "/orgs/<organization_id>/group-rules"
RULE = f"{RULES}/<group_rule_id>"
GRANTS = "--role=role --team=teamIds --role-in=roleIn --limits=limits --priority=priority --source=source"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", RULES, list_rules, "List group rules", tag=TAG, who=in_organization("provisioning:read"),
            inside="groupRules", commands=("group-rules list",)),
    managed("POST", RULES, create, "Add a group rule", tag=TAG,
            who=in_organization("provisioning:write"), request=NewGroupRule,
            inside="groupRule", success=201, audit="group_rule.create",
            commands=(f"group-rules create <group> {GRANTS} -> id",)),
    managed("POST", f"{RULES}/preview", preview, "Show whom a group rule would change", tag=TAG,
            who=in_organization("provisioning:read"),
            request=PreviewedRule, inside="preview",
            commands=(f"group-rules preview <group> {GRANTS} --replaces=groupRuleId",)),
    managed("PATCH", RULE, update, "Change a group rule", tag=TAG, who=RULE_MANAGER, request=GroupRuleChange,
            inside="groupRule", audit="group_rule.update",
            commands=(f"group-rules set <group_rule_id> --group=group {GRANTS}",)),
    managed("DELETE", RULE, delete, "Delete a group rule", tag=TAG, who=RULE_MANAGER, message="Group rule deleted.",
            audit="group_rule.delete", commands=("group-rules delete <group_rule_id>",)),
)  # fmt: skip
