"""`/connect/logs`: search of the request log, and the details of a request."""

import json
import re
from typing import Any
from urllib.parse import urlencode

from gateway.accounts.projects import list_projects
from gateway.clock import to_datetime
from gateway.errors import GatewayError, NotFound
from gateway.metering.log.records import LoggedRequest
from gateway.surfaces import request_log_reader
from gateway.surfaces.console.pages import page
from gateway.surfaces.console.visits import as_page, require_visitor
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.request_log_reader import LogsPageQuery, show_attempt, show_request
from gateway.surfaces.validation_schemas import read_query
from gateway.surfaces.visitor import Visitor
from gateway.worker.services import Services

TITLE = "Requests"
PATH = "/connect/logs"
REQUEST_PATH = f"{PATH}/<log_id>"
# Name of a filter → label of its field.
FILTERS = {
    "model": "Model",
    "provider": "Provider",
    "status": "Status",
    "errorCode": "Error code",
    "source": "App",
    "apiKeyId": "API key id",
    "requestId": "Request id",
    "metadata": "Metadata",
    "from": "From (UTC)",
    "to": "Until (UTC)",
}
# Name of a filter → placeholder, for formats that the label does not explain.
EXAMPLES = {"metadata": "team:search", "from": "2026-01-31", "to": "2026-01-31"}
# Name of a field of the log → label, unless the label follows from the name.
LABELS = {
    "served": "Served by",
    "finish": "Finished by",
    "mode": "Paid by",
    "source": "App",
    "durationMs": "Duration, ms",
    "cost": "Cost, USD",
    "dataStorageCost": "Data storage, USD",
    "discountSavings": "Saved by discounts, USD",
    "retained": "Payload kept",
}
VIDEOS = "videos"  # the operation with a file as its result
# Characters of a payload that a page shows; the management API returns the whole stored payload.
SHOWN = 65_536
# Fields that the page shows outside of the list of fields.
SHOWN_ELSEWHERE = ("metadata", "attempts", "id")


def show_list(services: Services, inbound: Inbound) -> Outbound:
    """Show the newest requests that match the filters, with a link to older requests."""
    visitor = require_visitor(services, inbound, _own_url(inbound))
    arguments = {name: value for name, value in inbound.arguments().items() if value}
    shown: dict[str, Any] = {"rows": [], "older": "", "error": None}
    try:
        log_page = request_log_reader.read_page(
            visitor, read_query(LogsPageQuery, inbound), inbound, request_log_reader.MOST
        )
        shown["rows"] = [_show_row(request) for request in log_page.found]
        cursor = request_log_reader.write_cursor(log_page)
        if cursor is not None:
            shown["older"] = "?" + urlencode({**arguments, "cursor": cursor})
    except GatewayError as error:
        if error.blame != "caller":
            raise
        shown["error"] = error
    shown["export"] = urlencode({name: value for name, value in arguments.items() if name in (*FILTERS, "projectId")})
    fields = [(name, text, arguments.get(name, ""), EXAMPLES.get(name, "")) for name, text in FILTERS.items()]
    projects = [
        (project.id, project.name, project.id == arguments.get("projectId"))
        for project in list_projects(services.store.database, list(visitor.memberships))
    ]
    return page(inbound, "logs.html", TITLE, wide=True, fields=fields, projects=projects, path=PATH, **shown)


def show_details(services: Services, inbound: Inbound) -> Outbound:
    """Show a request with its upstream calls and their costs, the routing decision and the payload."""
    visitor = require_visitor(services, inbound, _own_url(inbound))
    request = request_log_reader.find_one(visitor, inbound.params["log_id"][:80])
    video_url = ""
    if request.operation == VIDEOS:
        video_url = services.engine.videos.link_of_log(request.request_id, inbound.base_url)
    facts = [(_label(name), value) for name, value in show_request(request).items() if name not in SHOWN_ELSEWHERE]
    return page(
        inbound,
        "log.html",
        "Request",
        wide=True,
        id=request.request_id,
        facts=[(name, _text(value)) for name, value in facts if value not in (None, "", {})],
        tags=sorted(request.tags.items()),
        attempts=[show_attempt(record) for record in request.attempts],
        routing=_find_decision(visitor, request),
        video_url=video_url,
        label=_label,
        bodies=_find_bodies(visitor, request),
    )


def _show_row(request: LoggedRequest) -> dict[str, Any]:
    shown = show_request(request)
    return shown | {"time": to_datetime(request.at_us).strftime("%Y-%m-%d %H:%M:%S"), "tokens": _tokens(request)}


def _tokens(request: LoggedRequest) -> str:
    if request.attempts:
        return f"{request.input_tokens:,} / {request.output_tokens:,}"
    return ""


def _find_decision(visitor: Visitor, request: LoggedRequest) -> str:
    try:
        decision = visitor.services.routing.decisions.find(f"proj_{request.owner.project.hex()}", request.request_id)
    except NotFound:
        return ""
    decision.pop("attempts", None)
    return json.dumps(decision, indent=2, ensure_ascii=False)


def _find_bodies(visitor: Visitor, request: LoggedRequest) -> list[tuple[str, str]]:
    if request.payload is None:
        return []
    payload = visitor.services.engine.retention.read(request.payload)
    return [
        ("Request", payload.sent.decode("utf-8", "replace")[:SHOWN]),
        ("Response", payload.answer.decode("utf-8", "replace")[:SHOWN]),
    ]


def _label(name: str) -> str:
    """Return the label of a field, for example "Created at" for "createdAt"."""
    label = LABELS.get(name)
    if label is not None:
        return label
    words = re.sub("([A-Z])", r" \1", name).lower().replace("api key", "API key")
    return words[:1].upper() + words[1:]


def _text(value: object) -> str:
    if value is True:
        return "yes"
    if value is False:
        return "no"
    return str(value)


def _own_url(inbound: Inbound) -> str:
    if inbound.query:
        return f"{inbound.path}?{inbound.query}"
    return inbound.path


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", PATH, as_page(show_list)),
    Operation("GET", REQUEST_PATH, as_page(show_details)),
)
