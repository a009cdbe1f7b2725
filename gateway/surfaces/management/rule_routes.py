"""`…/iam`: access rules of an organization, project or member, and of one key."""

from typing import Any

from marshmallow import fields

from gateway.accounts import rules
from gateway.accounts.rule_values import READERS, SCOPES
from gateway.errors import NotFound
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.http_responses import json_reply
from gateway.surfaces.management import shapes
from gateway.surfaces.management.described import managed
from gateway.surfaces.management.presenters import show_rule
from gateway.surfaces.validation_schemas import Body, OneOf, TextField, read_body, read_query
from gateway.surfaces.visitor import Visitor

TAG = "Access rules"
TYPES = tuple(READERS)
STATUS = ("active", "inactive")


class KeyRule(Body):
    ruleType = OneOf(TYPES, required=True)
    ruleValue = fields.Dict(keys=fields.String(), required=True)
    status = OneOf(STATUS, load_default="active")


class PlacedRule(KeyRule):
    scope = OneOf(SCOPES, required=True)
    scopeId = TextField(1, 80, required=True)


class RuleStatus(Body):
    status = OneOf(STATUS, required=True)


class RuleQuery(Body):
    scope = OneOf(SCOPES)
    scopeId = TextField(1, 80)


def list_rules(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """The rules of all scopes, or of one: the organization, a team, a member or a key."""
    given = read_query(RuleQuery, inbound)
    organization_id = visitor.managed_organization(inbound)
    found = rules.list_rules(
        visitor.services.store.database, organization_id, given.get("scope", ""), given.get("scopeId", "")
    )
    return {"rules": [show_rule(rule) for rule in found]}


def add(visitor: Visitor, inbound: Inbound) -> Outbound:
    """Add a rule to the organization, a team, a member or a key of it."""
    given = read_body(PlacedRule, inbound)
    organization_id = visitor.managed_organization(inbound)
    place = given["scope"], given["scopeId"]
    owner = visitor.services.store.database.read(lambda: rules.organization_of(*place))
    if owner != organization_id:
        raise NotFound(f"There is no {given['scope']} {given['scopeId']} in this organization.")
    return _add(visitor, inbound, organization_id, *place, given)


def update(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """A disabled rule is kept but has no effect."""
    status = read_body(RuleStatus, inbound)["status"]
    organization_id = visitor.managed_organization(inbound)
    return _switch(visitor, inbound, organization_id, status)


def remove(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """From then on requests are judged without it."""
    organization_id = visitor.managed_organization(inbound)
    return _remove(visitor, inbound, organization_id)


def list_key_rules(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """The rules of the key itself; those of its organization, teams and member apply too."""
    key = visitor.key(inbound.params["key_id"])
    found = rules.list_rules(visitor.services.store.database, key.organization_id, "key", key.id)
    return {"rules": [show_rule(rule) for rule in found]}


def add_key_rule(visitor: Visitor, inbound: Inbound) -> Outbound:
    """A request must be allowed by the rules of the key, its organization, its teams and its owner."""
    given = read_body(KeyRule, inbound)
    key = visitor.key(inbound.params["key_id"])
    visitor.manager(key.organization_id)
    return _add(visitor, inbound, key.organization_id, "key", key.id, given)


def update_key_rule(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """A disabled rule is kept but has no effect."""
    status = read_body(RuleStatus, inbound)["status"]
    return _switch(visitor, inbound, _organization_of_key_rule(visitor, inbound), status)


def remove_key_rule(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """From then on requests are judged without it."""
    return _remove(visitor, inbound, _organization_of_key_rule(visitor, inbound))


def _organization_of_key_rule(visitor: Visitor, inbound: Inbound) -> str:
    """The organization of a rule that is really this key's, and that the visitor manages."""
    key = visitor.key(inbound.params["key_id"])
    visitor.manager(key.organization_id)
    found = rules.list_rules(visitor.services.store.database, key.organization_id, "key", key.id)
    if inbound.params["rule_id"] not in {rule.id for rule in found}:
        raise NotFound(f"There is no access rule {inbound.params['rule_id']} at this key.")
    return key.organization_id


def _add(
    visitor: Visitor, inbound: Inbound, organization_id: str, scope: Any, scope_id: str, given: dict[str, Any]
) -> Outbound:
    services = visitor.services
    made = rules.add_rule(
        services.store.database,
        services.store.control,
        scope,
        scope_id,
        given["ruleType"],
        given["ruleValue"],
        actor=visitor.user_id,
        active=given["status"] == "active",
        known=visitor.names_known_to(organization_id),
    )
    return json_reply({"rule": show_rule(made)}, inbound.shown_id, 201)


def _switch(visitor: Visitor, inbound: Inbound, organization_id: str, status: str) -> dict[str, Any]:
    services = visitor.services
    changed = rules.set_rule_active(
        services.store.database,
        services.store.control,
        organization_id,
        inbound.params["rule_id"],
        status == "active",
        actor=visitor.user_id,
    )
    return {"rule": show_rule(changed)}


def _remove(visitor: Visitor, inbound: Inbound, organization_id: str) -> dict[str, Any]:
    services = visitor.services
    rules.remove_rule(
        services.store.database,
        services.store.control,
        organization_id,
        inbound.params["rule_id"],
        actor=visitor.user_id,
    )
    return {"message": "Access rule removed."}


ONE = shapes.shape(rule=shapes.RULE)
MANY = shapes.shape(rules=[shapes.RULE])
ORG = "/orgs/<organization_id>/iam"
KEY = "/keys/api/<key_id>/iam"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", ORG, list_rules, "List access rules", tag=TAG, query=RuleQuery, answer=MANY),
    managed("POST", ORG, add, "Add an access rule", tag=TAG, request=PlacedRule, answer=ONE, success=201),
    managed("PATCH", f"{ORG}/<rule_id>", update, "Switch an access rule", tag=TAG, request=RuleStatus, answer=ONE),
    managed("DELETE", f"{ORG}/<rule_id>", remove, "Remove an access rule", tag=TAG, answer=shapes.DONE),
    managed("GET", KEY, list_key_rules, "List a key's access rules", tag=TAG, answer=MANY),
    managed("POST", KEY, add_key_rule, "Add an access rule to a key", tag=TAG, request=KeyRule, answer=ONE,
            success=201),
    managed("PATCH", f"{KEY}/<rule_id>", update_key_rule, "Switch a key's access rule", tag=TAG, request=RuleStatus,
            answer=ONE),
    managed("DELETE", f"{KEY}/<rule_id>", remove_key_rule, "Remove a key's access rule", tag=TAG,
            answer=shapes.DONE),
)  # fmt: skip
