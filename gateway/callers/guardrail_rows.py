"""Rules of guardrails as they are stored, read for requests and for the management API."""

import json
from typing import Any

from msgspec import convert, to_builtins

from gateway.callers.models import GuardrailRow
from gateway.guardrails.checkers import Checker
from gateway.guardrails.rule_sets import GuardrailRule

# The members of a rule that are stored as JSON, besides `exceptions`.
LISTS = ("detectors", "terms", "patterns", "places", "models", "hidden_from")
TEXTS = ("unread", "contact")


def rule_of(row: GuardrailRow) -> GuardrailRule:
    """Return the rule of a row."""
    content: dict[str, Any] = json.loads(row.content)
    members: dict[str, Any] = {name: tuple(content.get(name, ())) for name in LISTS}
    members |= {name: content[name] for name in TEXTS if name in content}
    exceptions = frozenset(entry["fingerprint"] for entry in content.get("exceptions", ()))
    if "checker" in content:
        members["checker"] = convert({**content["checker"], "sealed": row.checker_secret}, Checker)
    action: Any = row.action
    return GuardrailRule(row.id, row.name, action, probation=row.probation, exceptions=exceptions, **members)


def content_of(rule: GuardrailRule, exceptions: list[dict[str, Any]]) -> str:
    """Return the JSON of a row's `content`. `exceptions` are {fingerprint, note, added_at_us}."""
    members: dict[str, Any] = {name: list(getattr(rule, name)) for name in LISTS}
    members |= {name: getattr(rule, name) for name in TEXTS}
    if rule.checker is not None:
        members["checker"] = {name: value for name, value in to_builtins(rule.checker).items() if name != "sealed"}
    return json.dumps({**members, "exceptions": exceptions}, sort_keys=True)


def read_rules(organization_id: str) -> tuple[tuple[str, str, GuardrailRule], ...]:
    """Return the active rules of an organization with their places (scope, id); within a read of the database."""
    rows = GuardrailRow.select().where(GuardrailRow.organization == organization_id, GuardrailRow.active == True)  # noqa: E712
    return tuple((row.scope, row.scope_id, rule_of(row)) for row in rows.order_by(GuardrailRow.id))
