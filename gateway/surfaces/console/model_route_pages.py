"""`/console/routes`: the routes of organizations as sentences, with their drafts, versions and savings."""

import json
from collections.abc import Callable
from typing import Any

from gateway.errors import GatewayError, InvalidRequest
from gateway.money import parse_usd, round_usd
from gateway.surfaces.console.page_calls import ManagementCall
from gateway.surfaces.console.pages import page
from gateway.surfaces.console.visits import as_page, make_csrf, pressed, require_visitor, submitted_by_visitor
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.worker.services import Services

TITLE = "Routes"
PATH = "/console/routes"
FORM_NAME = "routes"
ROUTES = "/orgs/<organization_id>/routes"
LIST = ManagementCall(f"GET {ROUTES}")
SAVINGS = ManagementCall(f"GET {ROUTES}/savings")
CHECK = ManagementCall(f"POST {ROUTES}/check")
SIMULATE = ManagementCall(f"POST {ROUTES}/simulation")
PUT = ManagementCall(f"PUT {ROUTES}/<route_name>")
PUBLISH = ManagementCall(f"POST {ROUTES}/<route_name>/publish")
VERSIONS = ManagementCall(f"GET {ROUTES}/<route_name>/versions")
DELETE = ManagementCall(f"DELETE {ROUTES}/<route_name>")
DAYS = 30
SHOWN_VERSIONS = 10
SHOWN_SAVINGS = 50
SHOWN_CHOICES = 10
EXAMPLE = {
    "rules": [
        {"name": "sub-agents", "when": {"agent": "sub"}, "use": "claude-haiku-5-5"},
        {"name": "hard turns", "when": {"difficulty": ["large"]}, "use": "claude-opus-5-5"},
    ],
    "otherwise": "claude-sonnet-5-5",
}

Changing = Callable[[Visitor, Inbound, dict[str, str]], str]


def show(services: Services, inbound: Inbound) -> Outbound:
    """Show the routes of every organization in which the visitor may read rules."""
    return _page(services, inbound, require_visitor(services, inbound, PATH))


def act(services: Services, inbound: Inbound) -> Outbound:
    """Run the action of the button that was pressed."""
    visitor, form = submitted_by_visitor(services, inbound, PATH, FORM_NAME)
    actions: dict[str, Changing] = {"save": _save, "check": _check, "run": _run, "publish": _publish, "remove": _remove}
    action = pressed(actions, form)
    permission: Any = "rules:read" if action in (_check, _run) else "rules:write"
    try:
        visitor.permitted(form.get("organization", "")[:80], permission)
        message = action(visitor, inbound, form)
    except GatewayError as error:
        if error.blame != "caller":
            raise
        return _page(services, inbound, visitor, error=error, typed=form)
    return _page(services, inbound, visitor, message, typed=form if action in (_check, _run) else None)


def _save(visitor: Visitor, inbound: Inbound, form: dict[str, str]) -> str:
    fields = {
        "document": _document_of(form),
        "aliases": form.get("aliases", "").replace(",", " ").split(),
        "projectId": form.get("project", "").strip() or None,
        "replacesModels": form.get("replaces") == "on",
    }
    PUT.run(visitor, inbound, fields, organization_id=form["organization"], route_name=_name_of(form))
    return "The draft was saved. Requests use it once it is published."


def _check(visitor: Visitor, inbound: Inbound, form: dict[str, str]) -> str:
    fields = {"document": _document_of(form)}
    checked = CHECK.run(visitor, inbound, fields, organization_id=form["organization"])
    return f"The document can be published: {'; '.join(checked['rules'])}."


def _run(visitor: Visitor, inbound: Inbound, form: dict[str, str]) -> str:
    fields = {"document": _document_of(form)}
    done = SIMULATE.run(visitor, inbound, fields, organization_id=form["organization"])
    models = "; ".join(f"{one['rule']} → {one['model']}: {one['requests']}" for one in done["choices"][:SHOWN_CHOICES])
    before, after = (round_usd(parse_usd(done[name])) for name in ("cost", "newCost"))
    return (
        f"The {done['requests']} chat requests of the last week cost {before} and would cost {after}. "
        f"{done['changed']} would use another model, {done['undecided']} are undecided: "
        f"their rules need values that are not stored. {models}"
    )


def _publish(visitor: Visitor, inbound: Inbound, form: dict[str, str]) -> str:
    version = form.get("version", "")
    fields = {"version": int(version)} if version.isascii() and version.isdigit() else {}
    route = PUBLISH.run(visitor, inbound, fields, organization_id=form["organization"], route_name=_name_of(form))
    return f"Version {route['publishedVersion']} of {route['id']} is published."


def _remove(visitor: Visitor, inbound: Inbound, form: dict[str, str]) -> str:
    DELETE.run(visitor, inbound, organization_id=form["organization"], route_name=_name_of(form))
    return "The route was removed."


def _document_of(form: dict[str, str]) -> Any:
    try:
        return json.loads(form.get("document", ""))
    except (ValueError, RecursionError):
        raise InvalidRequest("The document is no JSON object.", param="document") from None


def _name_of(form: dict[str, str]) -> str:
    return form.get("route", "").strip()[:80]


def _page(
    services: Services,
    inbound: Inbound,
    visitor: Visitor,
    message: str = "",
    error: GatewayError | None = None,
    typed: dict[str, str] | None = None,
) -> Outbound:
    shown = [
        _organization(visitor, inbound, organization)
        for organization in visitor.organizations()
        if visitor.manages("rules:read", organization.id)
    ]
    return page(
        inbound,
        "model_routes.html",
        TITLE,
        error=error,
        visitor=visitor,
        message=message,
        csrf=make_csrf(services, visitor, FORM_NAME),
        organizations=shown,
        days=DAYS,
        typed=typed or {},
        example=json.dumps(EXAMPLE, indent=2),
    )


def _organization(visitor: Visitor, inbound: Inbound, organization: Any) -> dict[str, Any]:
    where = {"organization_id": organization.id}
    routes = LIST.run(visitor, inbound, **where)
    savings = SAVINGS.run(visitor, inbound, {"days": DAYS}, **where)
    for route in routes:
        versions = VERSIONS.run(visitor, inbound, **where, route_name=route["id"])
        route["versions"] = versions[:SHOWN_VERSIONS]
        route["text"] = json.dumps(route["document"], indent=2)
        route["changed"] = not versions or versions[0]["document"] != route["document"]
    return {
        "id": organization.id,
        "name": organization.name,
        "writes": visitor.manages("rules:write", organization.id),
        "routes": routes,
        "savings": savings[:SHOWN_SAVINGS],
        "saved": sum(parse_usd(one["saved"]) for one in savings),
    }


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", PATH, as_page(show)),
    Operation("POST", PATH, as_page(act), body="form"),
)
