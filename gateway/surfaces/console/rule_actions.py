"""The access rules of an organization, team, member or key on its page: list, add, switch and remove."""

from collections.abc import Callable
from typing import Any, NamedTuple

from gateway.surfaces.console.limit_forms import RULE_TYPES, describe_rule, read_rule
from gateway.surfaces.console.management_calls import ManagementCall
from gateway.surfaces.console.page_calls import PageAction, PageCall

LIST = ManagementCall("GET /orgs/<organization_id>/iam")
ADD = ManagementCall("POST /orgs/<organization_id>/iam")
SWITCH_RULE = ManagementCall("PATCH /orgs/<organization_id>/iam/<rule_id>")
REMOVE = ManagementCall("DELETE /orgs/<organization_id>/iam/<rule_id>")
# The admin of a project changes rules of its keys, and none of the organization.
OF_KEY = {
    ADD: ManagementCall("POST /keys/api/<key_id>/iam"),
    SWITCH_RULE: ManagementCall("PATCH /keys/api/<key_id>/iam/<rule_id>"),
    REMOVE: ManagementCall("DELETE /keys/api/<key_id>/iam/<rule_id>"),
}


class RulePlace(NamedTuple):
    """The subject of rules: `scope` is organization, team, member or key."""

    organization_id: str
    scope: str
    scope_id: str


def list_rules(call: PageCall, place: RulePlace) -> list[dict[str, Any]]:
    """Return the rules of a place, each with its text."""
    return describe_rules(call.run(LIST, {"scopeId": place.scope_id}, organization_id=place.organization_id))


def describe_rules(rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rules, each with what it does and its values as text."""
    return [{**rule, "text": describe_rule(rule)} for rule in rules]


def rule_fields(call: PageCall) -> dict[str, Any]:
    """Return what the form for a new rule offers."""
    return {
        "rule_types": list(RULE_TYPES.items()),
        "models": sorted(call.services.routing.catalogue.current().models),
    }


def rule_actions(find_place: Callable[[PageCall], RulePlace]) -> dict[str, PageAction]:
    """Return the actions of a page on the rules of a place."""

    def add(call: PageCall) -> str:
        place = find_place(call)
        fields = read_rule(call.form)
        if place.scope == "key":
            call.run(OF_KEY[ADD], fields, key_id=place.scope_id)
        else:
            fields |= {"scope": place.scope, "scopeId": place.scope_id}
            call.run(ADD, fields, organization_id=place.organization_id)
        return "The rule was added."

    def switch(call: PageCall) -> str:
        _run(call, SWITCH_RULE, {"status": call.form.get("status", "")})
        return "The rule was changed."

    def remove(call: PageCall) -> str:
        _run(call, REMOVE, None)
        return "The rule was removed."

    def _run(call: PageCall, change: ManagementCall, fields: dict[str, str] | None) -> None:
        place = find_place(call)
        rule_id = call.form.get("rule", "")
        if place.scope == "key":
            call.run(OF_KEY[change], fields, key_id=place.scope_id, rule_id=rule_id)
        else:
            call.run(change, fields, organization_id=place.organization_id, rule_id=rule_id)

    return {"add-rule": add, "switch-rule": switch, "remove-rule": remove}
