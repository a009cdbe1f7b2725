"""`/console/guardrails`: the guardrails of organizations, a box to test them, and what they found."""

from collections.abc import Callable
from typing import Any, NamedTuple

from gateway.errors import GatewayError
from gateway.guardrails.checkers import checker_forms
from gateway.guardrails.detectors import groups
from gateway.guardrails.rule_sets import ACTIONS, INPUTS, PLACES
from gateway.surfaces.console.page_calls import ManagementCall
from gateway.surfaces.console.pages import page
from gateway.surfaces.console.visits import as_page, make_csrf, pressed, require_visitor, submitted_by_visitor
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.worker.services import Services

TITLE = "Guardrails"
PATH = "/console/guardrails"
FORM_NAME = "guardrails"
RULES = "/orgs/<organization_id>/guardrails"
LIST = ManagementCall(f"GET {RULES}")
FINDINGS = ManagementCall(f"GET {RULES}/findings")
CREATE = ManagementCall(f"POST {RULES}")
CHECK = ManagementCall(f"POST {RULES}/test")
UPDATE = ManagementCall(f"PATCH {RULES}/<guardrail_id>")
DELETE = ManagementCall(f"DELETE {RULES}/<guardrail_id>")
EXCEPT = ManagementCall(f"POST {RULES}/<guardrail_id>/exceptions")
REPLAY = ManagementCall(f"POST {RULES}/<guardrail_id>/replay")
SHOWN_FINDINGS = 50
SHOWN_EXAMPLES = 20
REPLAY_DAYS = 7
DAYS = 30
ACTION_NAMES = {
    "block": "Block the request",
    "mask": "Mask, and restore in the answer",
    "remove": "Remove the value",
    "warn": "Warn in the answer",
    "log": "Only record",
}
ON_FAILURE_NAMES = {"block": "Block the request", "warn": "Warn in the answer", "pass": "Let it pass"}
STREAMING_NAMES = {"window": "Hold back until checked", "end": "Check at the end, block nothing"}
PLACE_NAMES = {
    "prompt": "prompts",
    "system": "instructions and tools",
    "history": "earlier messages",
    "tool_arguments": "arguments of tools",
    "tool_results": "results of tools",
    "answer": "answers",
}


class Shown(NamedTuple):
    """The result of a button: a message, and what a test or a replay found, with the organization and rule."""

    message: str
    found: dict[str, Any] | None = None


NOTHING_SHOWN = Shown("")

Changing = Callable[[Visitor, Inbound, dict[str, str]], Shown]


def show(services: Services, inbound: Inbound) -> Outbound:
    """Show the guardrails of every organization in which the visitor may read rules."""
    return _page(services, inbound, require_visitor(services, inbound, PATH))


def act(services: Services, inbound: Inbound) -> Outbound:
    """Run the action of the button that was pressed."""
    visitor, form = submitted_by_visitor(services, inbound, PATH, FORM_NAME)
    actions: dict[str, Changing] = {
        "add": _add,
        "check": _check,
        "switch": _switch,
        "probation": _probation,
        "except": _except,
        "replay": _replay,
        "remove": _remove,
    }
    action = pressed(actions, form)
    permission: Any = "rules:read" if action is _check else "rules:write"
    try:
        visitor.permitted(form.get("organization", "")[:80], permission)
        shown = action(visitor, inbound, form)
    except GatewayError as error:
        if error.blame != "caller":
            raise
        return _page(services, inbound, visitor, error=error)
    return _page(services, inbound, visitor, shown)


def _add(visitor: Visitor, inbound: Inbound, form: dict[str, str]) -> Shown:
    fields: dict[str, Any] = {
        "name": form.get("name", "").strip(),
        "action": form.get("action_of_rule", ""),
        "contact": form.get("contact", "").strip(),
        "probation": form.get("probation") == "on",
        "detectors": form.get("detectors", "").replace(",", " ").split(),
        "terms": _lines(form, "terms"),
        "patterns": _lines(form, "patterns"),
    }
    if form.get("checker"):
        fields |= {"checker": form["checker"], "settings": _lines(form, "settings")}
        optional = {
            "address": "address",
            "credential": "credential",
            "onFailure": "on_failure",
            "streaming": "streaming",
        }
        fields |= {name: form[key].strip() for name, key in optional.items() if form.get(key, "").strip()}
        timeout = form.get("timeout_ms", "").strip()
        if timeout:
            fields["timeoutMs"] = int(timeout) if timeout.isdecimal() and len(timeout) < 10 else 0
    places = [place for place in PLACES if form.get(f"in_{place}") == "on"]
    if places:
        fields["places"] = places
    if form.get("switched_off") == "on":
        fields["status"] = "inactive"
    CREATE.run(visitor, inbound, fields, organization_id=form["organization"])
    if form.get("switched_off") == "on":
        return Shown("The guardrail was added. It is off: replay it, then switch it on.")
    return Shown("The guardrail was added. It applies to the next request.")


def _lines(form: dict[str, str], name: str) -> list[str]:
    """Return the lines of a field that are not blank."""
    return [line.strip() for line in form.get(name, "").splitlines() if line.strip()]


def _check(visitor: Visitor, inbound: Inbound, form: dict[str, str]) -> Shown:
    fields = {"text": form.get("text", ""), "place": form.get("place", "prompt")}
    tested = CHECK.run(visitor, inbound, fields, organization_id=form["organization"])
    failed = " ".join(f"{one['guardrail']} could not be checked: {one['reason']}" for one in tested["failed"])
    if not tested["findings"]:
        return Shown(failed or "No guardrail finds anything in this text.")
    found = ", ".join(f"{one['guardrail']}: {one['kind']} ({one['action']})" for one in tested["findings"])
    result = "The request would be blocked." if tested["blocked"] else f"This would be sent: {tested['text']}"
    message = f"Found {found}. {result} {failed}".rstrip()
    examples = [
        {
            "rule": one["guardrailId"],
            "text": f"{one['guardrail']}: {one['kind']}, characters {one['start'] + 1} to {one['end']}",
            "fingerprint": one["fingerprint"],
        }
        for one in tested["findings"][:SHOWN_EXAMPLES]
    ]
    return Shown(
        message,
        {"organization": form["organization"], "title": "Found in the text", "counts": [], "examples": examples},
    )


def _replay(visitor: Visitor, inbound: Inbound, form: dict[str, str]) -> Shown:
    """Show what a rule would have found in retained requests."""
    rule = _rule_of(form)
    done = REPLAY.run(visitor, inbound, {"days": REPLAY_DAYS}, organization_id=form["organization"], guardrail_id=rule)
    message = f"{done['found']} of {done['requests']} retained requests of the last {REPLAY_DAYS} days have a finding."
    if not done["complete"]:
        message += " There were more requests than are read at once; the newest were read."
    if done["unread"]:
        message += f" {done['unread']} could not be read."
    counts = [
        f"{one['kind']} in {PLACE_NAMES[one['place']]}: {one['values']} values in {one['requests']} requests"
        for one in done["counts"]
    ]
    examples = [
        {
            "rule": rule,
            "text": f"{one['kind']} in {PLACE_NAMES[one['place']]}: {one['masked']}",
            "fingerprint": one["fingerprint"],
        }
        for one in done["examples"]
    ]
    found = {"organization": form["organization"], "title": "Found in retained requests", "counts": counts}
    return Shown(message, {**found, "examples": examples})


def _switch(visitor: Visitor, inbound: Inbound, form: dict[str, str]) -> Shown:
    status = "inactive" if form.get("status") == "active" else "active"
    _update(visitor, inbound, form, {"status": status})
    return Shown(f"The guardrail is {status}.")


def _probation(visitor: Visitor, inbound: Inbound, form: dict[str, str]) -> Shown:
    on = form.get("probation") != "True"
    _update(visitor, inbound, form, {"probation": on})
    return Shown(
        "The guardrail is on probation: it only records." if on else "The guardrail acts from the next request on."
    )


def _except(visitor: Visitor, inbound: Inbound, form: dict[str, str]) -> Shown:
    fingerprint = form.get("fingerprint", "")[:32]
    fields = {"fingerprint": fingerprint} if fingerprint else {"value": form.get("value", "").strip()}
    EXCEPT.run(visitor, inbound, fields, organization_id=form["organization"], guardrail_id=_rule_of(form))
    return Shown("The value is an exception now. Only its hash was stored.")


def _remove(visitor: Visitor, inbound: Inbound, form: dict[str, str]) -> Shown:
    DELETE.run(visitor, inbound, organization_id=form["organization"], guardrail_id=_rule_of(form))
    return Shown("The guardrail was removed.")


def _update(visitor: Visitor, inbound: Inbound, form: dict[str, str], fields: dict[str, Any]) -> None:
    UPDATE.run(visitor, inbound, fields, organization_id=form["organization"], guardrail_id=_rule_of(form))


def _rule_of(form: dict[str, str]) -> str:
    return form.get("rule", "")[:80]


def _page(
    services: Services,
    inbound: Inbound,
    visitor: Visitor,
    result: Shown = NOTHING_SHOWN,
    error: GatewayError | None = None,
) -> Outbound:
    shown = []
    for organization in visitor.organizations():
        if visitor.manages("rules:read", organization.id):
            rules = LIST.run(visitor, inbound, organization_id=organization.id)
            names = {rule["id"]: rule["name"] for rule in rules}
            counted = FINDINGS.run(visitor, inbound, {"days": DAYS}, organization_id=organization.id)
            findings = counted["findings"]
            shown.append(
                {
                    "id": organization.id,
                    "name": organization.name,
                    "writes": visitor.manages("rules:write", organization.id),
                    "rules": [{**rule, "what": _what(rule)} for rule in rules],
                    "complete": counted["complete"] and len(findings) <= SHOWN_FINDINGS,
                    "findings": [
                        {**one, "day": one["date"][:10], "rule": names.get(one["guardrailId"], one["guardrailId"])}
                        for one in findings[:SHOWN_FINDINGS]
                    ],
                }
            )
    return page(
        inbound,
        "guardrails.html",
        TITLE,
        error=error,
        visitor=visitor,
        message=result.message,
        found=result.found,
        replay_days=REPLAY_DAYS,
        csrf=make_csrf(services, visitor, FORM_NAME),
        organizations=shown,
        actions=[(action, ACTION_NAMES[action]) for action in ACTIONS],
        places=[(place, PLACE_NAMES[place], place != "answer") for place in PLACES],
        groups=groups(),
        checkers=list(checker_forms().values()),
        on_failure=ON_FAILURE_NAMES,
        streaming=STREAMING_NAMES,
        days=DAYS,
    )


def _what(rule: dict[str, Any]) -> str:
    """Return a sentence about what a rule looks for, and where."""
    wanted = [*rule["detectors"]]
    if rule["checker"]:
        wanted.append(checker_forms()[rule["checker"]["form"]].title)
    for members, one in (("terms", "own term"), ("patterns", "own pattern")):
        count = len(rule[members])
        if count:
            wanted.append(f"{count} {one}{'' if count == 1 else 's'}")
    named = set(rule["places"])
    if named >= set(INPUTS):
        places = "requests and answers" if len(named) == len(PLACES) else "all of requests"
    else:
        places = ", ".join(PLACE_NAMES[place] for place in rule["places"])
    models = f" for {', '.join(rule['models'])}" if rule["models"] else ""
    return f"{ACTION_NAMES[rule['action']]}: {', '.join(wanted)} in {places}{models}"


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", PATH, as_page(show)),
    Operation("POST", PATH, as_page(act), body="form"),
)
