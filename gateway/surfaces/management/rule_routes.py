"""`…/iam`: access rules of an organization, project or member, and of one key."""

from functools import partial
from typing import Any

from marshmallow import fields

from gateway.accounts import rules
from gateway.accounts.keys import KeyInfo
from gateway.admin.held_limits import check_rule_author
from gateway.callers.models import Scope
from gateway.callers.rule_values import READERS, SCOPES, RuleInfo
from gateway.errors import NotFound
from gateway.surfaces.management.access_groups import in_organization, of_key
from gateway.surfaces.management.answers import AccessRuleAnswer
from gateway.surfaces.management.managed_operation import ListPageQuery, ManagedCall, managed
from gateway.surfaces.visitors.validation_schemas import ON_OFF, Body, OneOf, StatusField, TextField, describe_field
from gateway.surfaces.web.http import Operation

TAG = "Access rules"
TYPES = tuple(READERS)


class KeyRule(Body):
    ruleType = OneOf(TYPES, required=True)
    ruleValue = fields.Dict(
        keys=fields.String(), required=True, metadata=describe_field("", examples=[{"models": ["gpt-4o-mini"]}])
    )
    status = StatusField(load_default="active")


class PlacedRule(KeyRule):
    scope = OneOf(SCOPES, required=True)
    scopeId = TextField(1, 80, required=True)


class RuleStatus(Body):
    status = StatusField(required=True, words=ON_OFF)


class RuleQuery(ListPageQuery):
    scope = OneOf(SCOPES, about="Only rules of this scope.")
    scopeId = TextField(1, 80, about="Only rules of this team, member, key or service account.")


def list_rules(call: ManagedCall[str]) -> list[AccessRuleAnswer]:
    """The rules of all scopes, or of one: the organization, a team, a member, a key or a service account."""
    scope = call.fields.get("scope", "")
    scope_id = call.fields.get("scopeId", "")
    infos = call.page.read(partial(rules.list_rules, call.database, call.subject, scope, scope_id))
    return [show_rule(rule) for rule in infos]


def add(call: ManagedCall[str]) -> AccessRuleAnswer:
    """Add a rule to the organization, or to a team, a member, a key or a service account of it."""
    scope = call.fields["scope"]
    scope_id = call.fields["scopeId"]
    _check_scope(call, scope)
    owner = call.database.read(lambda: rules.organization_of(scope, scope_id))
    if owner != call.subject:
        raise NotFound(f"There is no {scope} {scope_id} in this organization.")
    return _add(call, owner, scope, scope_id)


def update(call: ManagedCall[str]) -> AccessRuleAnswer:
    """A disabled rule is kept but has no effect."""
    _check_rule(call)
    return _switch(call, call.subject)


def remove(call: ManagedCall[str]) -> None:
    """The rule no longer applies to requests."""
    _check_rule(call)
    rules.remove_rule(*call.stores, call.subject, call.params["rule_id"], actor=call.actor)


def list_key_rules(call: ManagedCall[KeyInfo]) -> list[AccessRuleAnswer]:
    """The rules of the key itself; those of its organization, teams and member apply too."""
    key = call.subject
    return [show_rule(rule) for rule in rules.list_rules(call.database, key.organization_id, "key", key.id)]


def add_key_rule(call: ManagedCall[KeyInfo]) -> AccessRuleAnswer:
    """A request must be allowed by the rules of the key, its organization, its teams and its owner."""
    return _add(call, call.subject.organization_id, "key", call.subject.id)


def update_key_rule(call: ManagedCall[KeyInfo]) -> AccessRuleAnswer:
    """A disabled rule is kept but has no effect. The admin of a project disables no rule of a higher role."""
    _check_key_rule(call)
    if call.fields["status"] != "active":
        _check_author(call)
    return _switch(call, call.subject.organization_id)


def remove_key_rule(call: ManagedCall[KeyInfo]) -> None:
    """The rule no longer applies to requests. The admin of a project removes no rule of a higher role."""
    _check_key_rule(call)
    _check_author(call)
    rules.remove_rule(*call.stores, call.subject.organization_id, call.params["rule_id"], actor=call.actor)


def show_rule(info: RuleInfo) -> AccessRuleAnswer:
    return AccessRuleAnswer.of(
        info, rule_type=info.type, rule_value=info.value, status="active" if info.active else "inactive"
    )


def _check_scope(call: ManagedCall[Any], scope: str) -> None:
    """Raise Forbidden if a service account would change rules of service accounts, which restrict itself."""
    if scope == "service_account":
        call.visitor.check_person("Only people change the access rules of service accounts.")


def _check_rule(call: ManagedCall[str]) -> None:
    """Check the scope of the rule in the path like `_check_scope`."""
    if call.visitor.account is not None:
        for rule in rules.list_rules(call.database, call.subject, "service_account"):
            if rule.id == call.params["rule_id"]:
                _check_scope(call, rule.scope)


def _check_key_rule(call: ManagedCall[KeyInfo]) -> None:
    """Raise NotFound unless the rule in the path belongs to the key."""
    rule_id = call.params["rule_id"]
    key = call.subject
    if rule_id not in {rule.id for rule in rules.list_rules(call.database, key.organization_id, "key", key.id)}:
        raise NotFound(f"This key has no access rule {rule_id}.")


def _check_author(call: ManagedCall[KeyInfo]) -> None:
    """Raise Forbidden for the admin of a project if a higher role added the rule in the path."""
    organization_id = call.subject.organization_id
    if not call.visitor.manages("keys:restrict", organization_id):
        call.database.read(lambda: check_rule_author(organization_id, call.params["rule_id"], call.actor))


def _add(call: ManagedCall[Any], organization_id: str, scope: Scope, scope_id: str) -> AccessRuleAnswer:
    fields = call.fields
    info = rules.add_rule(
        *call.stores,
        scope,
        scope_id,
        fields["ruleType"],
        fields["ruleValue"],
        actor=call.actor,
        active=fields["status"] == "active",
        known=call.visitor.names_known_to(organization_id),
    )
    return show_rule(info)


def _switch(call: ManagedCall[Any], organization_id: str) -> AccessRuleAnswer:
    active = call.fields["status"] == "active"
    return show_rule(
        rules.set_rule_active(*call.stores, organization_id, call.params["rule_id"], active, actor=call.actor)
    )


ORG = "/orgs/<organization_id>/iam"
KEY = "/keys/api/<key_id>/iam"
CREATED = "access_rule.create"
STATUS_CHANGED = "access_rule.update_status"
REMOVED = "access_rule.delete"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", ORG, list_rules, "List access rules", tag=TAG,
            who=in_organization("rules:read"), scope="rules:read", query=RuleQuery,
            inside="rules",
            commands=("rules list <organization_id> --scope=scope --id=scopeId",)),
    managed("POST", ORG, add, "Add an access rule", tag=TAG,
            who=in_organization("rules:write"), scope="rules:write", request=PlacedRule,
            inside="rule", success=201, audit=CREATED,
            commands=("rules add <scope> <scopeId> <ruleType> <ruleValue> -> id",)),
    managed("PATCH", f"{ORG}/<rule_id>", update, "Enable or disable an access rule", tag=TAG,
            who=in_organization("rules:write"), scope="rules:write", request=RuleStatus,
            inside="rule", audit=STATUS_CHANGED,
            commands=("rules switch <organization_id> <rule_id> <status>",)),
    managed("DELETE", f"{ORG}/<rule_id>", remove, "Remove an access rule", tag=TAG,
            who=in_organization("rules:write"), scope="rules:write",
            message="Access rule removed.", audit=REMOVED, commands=("rules remove <organization_id> <rule_id>",)),
    managed("GET", KEY, list_key_rules, "List a key's access rules", tag=TAG,
            who=of_key("keys:read"), scope="rules:read",
            inside="rules"),
    managed("POST", KEY, add_key_rule, "Add an access rule to a key", tag=TAG,
            who=of_key("keys:restrict"), scope="rules:write", request=KeyRule,
            inside="rule", success=201, audit=CREATED),
    managed("PATCH", f"{KEY}/<rule_id>", update_key_rule, "Enable or disable a key's access rule", tag=TAG,
            who=of_key("keys:restrict"), scope="rules:write",
            request=RuleStatus, inside="rule", audit=STATUS_CHANGED),
    managed("DELETE", f"{KEY}/<rule_id>", remove_key_rule, "Remove a key's access rule", tag=TAG,
            who=of_key("keys:restrict"), scope="rules:write",
            message="Access rule removed.", audit=REMOVED),
)  # fmt: skip
