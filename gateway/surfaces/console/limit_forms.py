"""Fields of forms as the management API takes them: spending limits, access rules, whole numbers, members of a schema,
and the managed settings of Claude Code."""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from marshmallow import fields as schema_fields

from gateway.callers.rule_values import PRICE_TYPES, PRICING, READERS
from gateway.errors import InvalidRequest
from gateway.surfaces.console.page_calls import ManagementCall, PageAction, PageCall
from gateway.surfaces.management.limit_routes import PERIOD, RESERVATION
from gateway.surfaces.visitors.validation_schemas import OneOf

# Type of a rule → what it does.
RULE_TYPES = {
    "allow_models": "Allow only these models",
    "deny_models": "Refuse these models",
    "allow_providers": "Allow only these providers",
    "deny_providers": "Refuse these providers",
    "allow_pricing": "Allow only models at these prices",
    "deny_pricing": "Refuse models at these prices",
    "allow_ip_cidrs": "Allow only these networks",
    "deny_ip_cidrs": "Refuse these networks",
}
PRICES = {
    "pricingType": "{} models",
    "maxInputPrice": "input up to ${}/token",
    "maxOutputPrice": "output up to ${}/token",
}
PRICE_WORDS = {"input": "maxInputPrice", "output": "maxOutputPrice"}

PART_FIELD = "in-"  # begins the names of checkboxes of teams and projects; their ids follow

RATES = (
    ("requestsPerMinute", "Requests per minute"),
    ("tokensPerMinute", "Tokens per minute"),
    ("concurrentRequests", "Concurrent requests"),
)


def read_limit_fields(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the members of a change of limits. A period without an amount is no limit."""
    amount = form.get("periodUsageLimit", "").strip()
    fields: dict[str, Any] = {"usageLimit": form.get("usageLimit", "").strip() or None}
    if not amount:
        return {**fields, **dict.fromkeys(PERIOD)}
    value = read_number(form, "periodUsageDurationValue", "length of the period")
    unit = form.get("periodUsageDurationUnit", "")
    return {**fields, **dict(zip(PERIOD, (amount, value, unit), strict=True))}


def read_limit_change(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the members of a change of limits, with what requests reserve of them."""
    fields = read_limit_fields(form)
    if reservation := form.get(RESERVATION, ""):
        fields[RESERVATION] = reservation
    return fields


class FormField(NamedTuple):
    """A field of a form that follows from a member of an operation's body."""

    name: str
    label: str
    about: str
    type: Literal["text", "number", "check", "choice"]
    choices: tuple[str, ...] = ()


def list_further_fields(call: ManagementCall, apart: Collection[str]) -> tuple[FormField, ...]:
    """Return a field for each member of the operation's body, without those that the page shows in its own way."""
    return tuple(_describe_field(name, member) for name, member in call.members.items() if name not in apart)


def _describe_field(name: str, member: schema_fields.Field[Any]) -> FormField:
    label = re.sub(r"(?=[A-Z])", " ", name).capitalize()
    about = str(member.metadata.get("description", ""))
    if isinstance(member, OneOf):
        return FormField(name, label, about, "choice", member.choices)
    if isinstance(member, schema_fields.Boolean):
        return FormField(name, label, about, "check")
    return FormField(name, label, about, "number" if isinstance(member, schema_fields.Integer) else "text")


def read_further_fields(form: Mapping[str, str], further: Sequence[FormField]) -> dict[str, Any]:
    """Return the members of the body. Raises InvalidRequest for a text in place of a number."""
    members: dict[str, Any] = {}
    for field in further:
        if field.type == "check":
            members[field.name] = form.get(field.name) == "on"
        elif field.type == "number":
            members[field.name] = read_number(form, field.name, field.label.lower())
        else:
            members[field.name] = form.get(field.name, "").strip()
    return members


def read_number(form: Mapping[str, str], name: str, label: str) -> int:
    """Return a whole number of a form. Raises InvalidRequest."""
    text = form.get(name, "").strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    raise InvalidRequest(f"The {label} must be a whole number.", param=name)


def read_session_budget(form: Mapping[str, str]) -> dict[str, str | None]:
    """Return the members of a change of the budgets of sessions; an empty field is no budget."""
    return {name: form.get(name, "").strip() or None for name in ("sessionBudget", "runBudget")}


def read_rates(form: Mapping[str, str]) -> dict[str, int | None]:
    """Return the members of a change of rate limits; an empty field is no limit. Raises InvalidRequest."""
    rates: dict[str, int | None] = dict.fromkeys(name for name, _ in RATES)
    for name, label in RATES:
        if form.get(name, "").strip():
            rates[name] = read_number(form, name, label.lower())
    return rates


def read_role_in(form: Mapping[str, str]) -> list[str]:
    """Return the ids of the teams and projects that are checked in the fields of `lists.role_in`."""
    return [name.removeprefix(PART_FIELD) for name, value in form.items() if name.startswith(PART_FIELD) and value]


def name_parts(parts: Sequence[str], teams: Sequence[Mapping[str, Any]], projects: Sequence[Mapping[str, Any]]) -> str:
    """Return roles in teams and projects as people read them; ids stand for those that are not listed."""
    names = {team["id"]: f"lead of {team['name']}" for team in teams}
    names |= {project["id"]: f"admin of {project['name']}" for project in projects}
    return ", ".join(names.get(part, part) for part in parts)


def read_words(text: str) -> list[str]:
    """Return the words of a field in which commas, spaces or lines separate names."""
    return text.replace(",", " ").split()


def read_rule(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the members of a new access rule. Raises InvalidRequest for an unknown type, and for a price without its
    name."""
    kind = form.get("ruleType", "")
    if kind not in RULE_TYPES:
        raise InvalidRequest("Choose a type of rule.", param="ruleType")
    words = read_words(form.get("ruleValue", ""))
    members, _ = READERS[kind]
    value: dict[str, Any] = _read_prices(words) if members == PRICING else {members[0]: words}
    return {"ruleType": kind, "ruleValue": value}


def _read_prices(words: list[str]) -> dict[str, str]:
    value = {}
    for word in words:
        name, _, price = word.lower().partition("=")
        if name in PRICE_TYPES:
            value["pricingType"] = name
        elif name in PRICE_WORDS and price:
            value[PRICE_WORDS[name]] = price
        else:
            raise InvalidRequest("Write prices as: free, paid, input=0.000003 or output=0.000015 (USD per token).")
    return value


def describe_rule(rule: Mapping[str, Any]) -> tuple[str, str]:
    """Return what a rule does, and its values as text."""
    members, _ = READERS[rule["ruleType"]]
    value = rule["ruleValue"]
    if members == PRICING:
        values = [PRICES[name].format(value[name]) for name in PRICES if name in value]
    else:
        values = value[members[0]]
    return RULE_TYPES[rule["ruleType"]], ", ".join(values)


# The access rules of an organization, team, member or key on its page: list, add, switch and remove.

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


# The section of a page for the managed settings of Claude Code, of an organization and of a team.

FIELD = "managed_settings"
ORGANIZATION = "/orgs/<organization_id>/managed-settings"
TEAM = "/orgs/<organization_id>/teams/<team_id>/managed-settings"
# A function that returns the variables of the path.
PathOf = Callable[[PageCall], dict[str, Any]]


class ManagedSettingsForm:
    """The form of one place: its text, and the actions that save and remove the settings."""

    def __init__(self, path: str, path_of: PathOf) -> None:
        self._find = ManagementCall(f"GET {path}")
        self._replace = ManagementCall(f"PUT {path}")
        self._remove = ManagementCall(f"DELETE {path}")
        self._path_of = path_of
        self.actions: dict[str, PageAction] = {FIELD: self._save, f"remove_{FIELD}": self._delete}

    def text(self, call: PageCall) -> str:
        """Return the settings as indented JSON, "" without any."""
        settings = call.run(self._find, **self._path_of(call))["settings"]
        if settings is None:
            return ""
        return json.dumps(settings, indent=2, ensure_ascii=False)

    def _save(self, call: PageCall) -> str:
        try:
            settings = json.loads(call.form.get(FIELD, ""))
        except (ValueError, RecursionError):
            raise InvalidRequest("The settings are not valid JSON.") from None
        call.run(self._replace, {"settings": settings}, **self._path_of(call))
        return "The settings were saved. Claude Code applies them at its next start, or within an hour."

    def _delete(self, call: PageCall) -> str:
        call.run(self._remove, **self._path_of(call))
        return "The settings were removed."
