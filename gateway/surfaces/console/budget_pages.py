"""`/console/budgets`: the limits of an organization, with what is used of each, their raises and those who ask for
more."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from msgspec.structs import replace

from gateway.limits.limit_rules import read_subject
from gateway.limits.owned_rows import parse_owned
from gateway.money import parse_usd, round_usd
from gateway.surfaces.console.lists import Column, arrange
from gateway.surfaces.console.organization_choice import choose_organization
from gateway.surfaces.console.page_calls import ManagementCall, PageAction, PageCall, page_operations, show_instead
from gateway.surfaces.management.owned_limit_access import may_change_owned, may_simulate_owned
from gateway.surfaces.web.http import Operation, Outbound

TITLE = "Budgets"
PATH = "/console/budgets"
ONE = f"{PATH}/<organization_id>/<limit_id>"
LIMITS = "/orgs/<organization_id>/limits"
LIST = ManagementCall(f"GET {LIMITS}")
FIND = ManagementCall(f"GET {LIMITS}/<limit_id>")
PUT = ManagementCall(f"PUT {LIMITS}/<limit_id>")
DELETE = ManagementCall(f"DELETE {LIMITS}/<limit_id>")
RAISE = ManagementCall(f"PUT {LIMITS}/<limit_id>/raise")
REQUESTS = ManagementCall(f"GET {LIMITS}/<limit_id>/requests")
ASK = ManagementCall(f"POST {LIMITS}/<limit_id>/requests")
GRANT = ManagementCall(f"PUT {LIMITS}/<limit_id>/requests/<request_id>")
DECLINE = ManagementCall(f"DELETE {LIMITS}/<limit_id>/requests/<request_id>")
SIMULATE = ManagementCall(f"GET {LIMITS}/<limit_id>/simulation")
PREVIEW = ManagementCall(f"POST {LIMITS}/simulation")
SIMULATED_DAYS = 30
COLUMNS = (
    Column("Limit", "id"),
    Column("Of", "of"),
    Column("Used", "spent", numeric=True),
    Column("Period", "span", extra=True),
    Column("Reached", "forecastAt", extra=True),
)
OTHER_COLUMNS = (
    Column("Of", "of"),
    Column("Used", "spent", numeric=True),
    Column("Period", "span", extra=True),
    Column("Reached", "forecastAt", extra=True),
)
# Kind of what a limit belongs to → the page of it.
PLACES = {
    "key": "/console/keys/{}",
    "team": "/console/teams/{}",
    "member": "/console/people",
    "provider_key": "/console/providers/keys",
    "project": "/console/projects/{}",
}
MEMBER_COLUMNS = (Column("Member", "member"), Column("Used", "spent", numeric=True), Column("Renews", "renewsAt"))
# Kind of a subject → the filter of the page Requests that shows what counts under it.
FILTERS = {
    "project": "projectId",
    "key": "apiKeyId",
    "customer": "apiKeyId",
    "model": "model",
    "provider": "provider",
    "application": "source",
    "session": "session",
}


def show_list(call: PageCall) -> Outbound:
    """Show the limits with their use."""
    choice = choose_organization(call, "limits:read")
    listed = call.run(LIST, {"all": "true"}, organization_id=choice.id)
    rows = [_show_row(limit) for limit in listed if not limit["changedWith"]]
    others = [_show_owned(limit) for limit in listed if limit["changedWith"]]
    return call.page(
        "budgets/budgets.html",
        TITLE,
        limits=arrange(rows, COLUMNS, call.arguments, searched=("id", "of"), sort="id"),
        choice=choice,
        others=arrange(others, OTHER_COLUMNS, call.arguments, searched=("of",), sort="of", page_name="others"),
        reopens=call.form.get("action") == "preview",
        path=PATH,
        manages=call.visitor.manages("limits:write", choice.id),
    )


def show_limit(call: PageCall) -> Outbound:
    """Show a limit with its members, its raise and the requests for more."""
    organization_id = call.params["organization_id"]
    found = call.run(FIND, **_path(call))
    owned = parse_owned(found["id"])
    limit = _show_row(found) if owned is None else _show_owned(found)
    if owned is None:
        reach = call.visitor.reach(organization_id, "limits:raise")
        subjects = tuple(map(read_subject, limit["subjects"]))
        raises = reach.whole or any(subject.kind == "team" and subject.value in reach.teams for subject in subjects)
        manages = call.visitor.manages("limits:write", organization_id)
        simulates = True
    else:
        raises = limit["deletable"]  # who may change it but not raise it asks, too
        manages = may_change_owned(call.visitor, organization_id, owned)
        simulates = may_simulate_owned(call.visitor, organization_id, owned)
    members = [_show_member(one, limit["limit"]) for one in limit["members"]]
    form = limit
    if call.form.get("action") in ("try", "change") and (call.error or call.message):
        form = {**limit, **_read_limit(call.form)}
    return call.page(
        "budgets/budget.html",
        limit["id"] if owned is None else "Limit of the " + limit["of"],
        limit=limit,
        form=form,
        members=arrange(members, MEMBER_COLUMNS, call.arguments, searched=("member",), sort="-spent"),
        manages=manages,
        simulates=simulates,
        previews=call.visitor.manages("limits:write", organization_id),
        raises=raises,
        requests=call.run(REQUESTS, **_path(call)) if raises else [],
        behind=_link_requests(limit),
        organization_id=organization_id,
        path=PATH,
    )


def _preview(call: PageCall) -> Outbound:
    """Show what a limit would have done, with the form as it was."""
    choice = choose_organization(call, "limits:write")
    body = {**_read_limit(call.form), "days": SIMULATED_DAYS}
    done = call.run(PREVIEW, body, organization_id=choice.id)
    return show_list(replace(call, message=describe_simulation(done)))


def _simulate(call: PageCall) -> str:
    return describe_simulation(call.run(SIMULATE, {"days": SIMULATED_DAYS}, **_path(call)))


def _simulate_change(call: PageCall) -> Outbound:
    """Show what the limit of a form would have done, with the form as it was."""
    body = {**_read_limit(call.form), "days": SIMULATED_DAYS}
    done = call.run(PREVIEW, body, organization_id=call.params["organization_id"])
    return show_limit(replace(call, message=describe_simulation(done)))


def describe_simulation(done: dict[str, Any]) -> str:
    """Return what a simulation says, as a sentence or a few."""
    since = done["since"][:10]
    if not done["requests"]:
        return f"No request since {since} would have counted under this limit."
    counted = f"{_count(done['requests'], 'request')} for {round_usd(parse_usd(done['cost']))}"
    text = f"With this limit, none of {counted} since {since} would have been refused."
    if done["refusedRequests"]:
        people = _count(done["peopleCount"], "person", "people")
        refused = f"{_count(done['refusedRequests'], 'request')} of {people}"
        first = done["firstRefusedAt"][:10]
        text = f"With this limit, {refused} would have been refused since {since}, of {counted}; the first on {first}."
    for name, what in (("warnedRequests", "warned"), ("substitutedRequests", "served by another model")):
        if done[name]:
            text += f" {_count(done[name], 'request')} would have been {what}."
    if not done["complete"]:
        text += " Earlier usage was too much to read."
    return text


def _count(number: int, one: str, several: str = "") -> str:
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def _put(call: PageCall) -> str:
    choice = choose_organization(call, "limits:write")
    limit = call.run(PUT, _read_limit(call.form), organization_id=choice.id, limit_id=call.form.get("id", "").strip())
    return f"The limit {limit['id']} was saved."


def _change(call: PageCall) -> str:
    call.run(PUT, _read_limit(call.form), **_path(call))
    return "The limit was saved."


def _delete(call: PageCall) -> Outbound:
    call.run(DELETE, **_path(call))
    return show_instead(call, PATH, show_list, "The limit was deleted.")


def _raise(call: PageCall) -> str:
    call.run(RAISE, _read_raise(call.form), **_path(call))
    return "The raise was saved."


def _ask(call: PageCall) -> str:
    note = call.form.get("note", "").strip()
    call.run(ASK, {**_read_raise(call.form), "note": note}, **_path(call))
    return "Owners, admins and billing see that you ask for more."


def _grant(call: PageCall) -> str:
    call.run(GRANT, request_id=call.form.get("request", "")[:80], **_path(call))
    return "The raise was granted."


def _decline(call: PageCall) -> str:
    call.run(DECLINE, request_id=call.form.get("request", "")[:80], **_path(call))
    return "The request was declined."


def _read_limit(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the body of a limit from a form: subjects and actions are written with commas between them."""
    return {
        "subjects": _split(form.get("subjects", "")),
        "amount": form.get("amount", "").strip(),
        "period": form.get("period", "").strip() or None,
        "timezone": form.get("timezone", "").strip() or None,
        "actions": _split(form.get("actions", "")) or ["refuse@100"],
        "reservation": form.get("reservation", "").strip() or "likely",
        "values": form.get("values", "") or "request",
    }


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _read_raise(form: Mapping[str, str]) -> dict[str, Any]:
    return {"amount": form.get("amount", "").strip(), "until": form.get("until", "").strip()}


def _path(call: PageCall) -> dict[str, Any]:
    return {"organization_id": call.params["organization_id"], "limit_id": call.params["limit_id"]}


def _show_row(limit: dict[str, Any]) -> dict[str, Any]:
    zone = limit["timezone"]
    span = limit["period"] or "in total"
    return {
        **limit,
        "of": " × ".join(limit["subjects"]),
        "spent": float(limit["usage"]),
        "span": f"{span}, {zone}" if zone else span,
        "place": "",
        "each": False,
    }


def _show_owned(limit: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a limit that belongs to a key, member, team, provider key or project."""
    first, *more = map(read_subject, limit["subjects"])
    each = "".join(f", {subject}" for subject in more)
    place = PLACES[first.kind].format(first.value)
    kind = first.kind.replace("_", " ")
    of = f"{kind} {limit['name'] or first.value}{each}"
    return {**_show_row(limit), "of": of, "place": place, "kind": kind, "each": bool(each)}


def _show_member(member: dict[str, Any], amount: str) -> dict[str, Any]:
    return {**member, "spent": float(member["usage"]), "amount": member["limit"] or amount}


def _link_requests(limit: dict[str, Any]) -> str:
    """Return the address of the requests that count in the present window of a limit, as far as filters name them."""
    query = {}
    for subject in map(read_subject, limit["subjects"]):
        if not subject.value or "*" in subject.value:
            continue
        if subject.kind in ("tag", "user", "run"):
            query["metadata"] = f"{subject.name or subject.kind}:{subject.value}"
        elif subject.kind in FILTERS:
            query[FILTERS[subject.kind]] = subject.value
    if limit["startedAt"]:
        query["from"] = limit["startedAt"]
    return f"/console/logs?{urlencode(query)}"


ACTIONS: dict[str, PageAction] = {
    "change": _change,
    "delete": _delete,
    "raise": _raise,
    "simulate": _simulate,
    "try": _simulate_change,
    "ask": _ask,
    "grant": _grant,
    "decline": _decline,
}
OPERATIONS: tuple[Operation, ...] = (
    *page_operations(PATH, show_list, {"put": _put, "preview": _preview}),
    *page_operations(ONE, show_limit, ACTIONS),
)
