"""`/connect/logs`: the request log to search, and the details of one request."""

import json
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
ONE = f"{PATH}/<log_id>"
# Name of a filter → what stands before its field.
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
# What somebody could write into a field whose name does not say it.
EXAMPLES = {"metadata": "team:search", "from": "2026-01-31", "to": "2026-01-31"}
# What is said of a fact in other words than its name.
WORDS = {
    "served": "Served by",
    "finish": "Finished by",
    "mode": "Paid with",
    "source": "App",
    "durationMs": "Time taken, ms",
    "cost": "Cost, USD",
    "dataStorageCost": "Data storage, USD",
    "discountSavings": "Saved by discounts, USD",
    "retained": "Payload kept",
}
VIDEOS = "videos"  # the operation that leaves a file
# Characters of a payload that a page shows; the management API has all that is kept.
SHOWN = 65_536
# Facts of a request that have a line of their own, or are told elsewhere on its page.
APART = ("metadata", "attempts", "id")


def show_list(services: Services, inbound: Inbound) -> Outbound:
    """The newest requests that the fields describe; older ones by the link below."""
    visitor = require_visitor(services, inbound, _own_address(inbound))
    given = {name: value for name, value in inbound.arguments().items() if value}
    shown: dict[str, Any] = {"rows": [], "older": "", "error": None}
    try:
        found = request_log_reader.read_page(
            visitor, read_query(LogsPageQuery, inbound), inbound, request_log_reader.MOST
        )
        shown["rows"] = [_show_row(one) for one in found.found]
        cursor = request_log_reader.write_cursor(found)
        if cursor is not None:
            shown["older"] = "?" + urlencode({**given, "cursor": cursor})
    except GatewayError as error:
        if error.blame != "caller":
            raise
        shown["error"] = error
    shown["export"] = urlencode({name: value for name, value in given.items() if name in (*FILTERS, "projectId")})
    fields = [(name, text, given.get(name, ""), EXAMPLES.get(name, "")) for name, text in FILTERS.items()]
    projects = [
        (project.id, project.name, project.id == given.get("projectId"))
        for project in list_projects(services.store.database, list(visitor.memberships))
    ]
    return page(inbound, "logs.html", TITLE, wide=True, fields=fields, projects=projects, path=PATH, **shown)


def show_one(services: Services, inbound: Inbound) -> Outbound:
    """One request: its facts, its upstream calls with what each cost, the routing decision and the payload."""
    visitor = require_visitor(services, inbound, _own_address(inbound))
    one = request_log_reader.find_one(visitor, inbound.params["log_id"][:80])
    facts = [(_words(name), value) for name, value in show_request(one).items() if name not in APART]
    return page(
        inbound,
        "log.html",
        "Request",
        wide=True,
        id=one.request_id,
        facts=[(name, _text(value)) for name, value in facts if value not in (None, "", {})],
        tags=sorted(one.tags.items()),
        attempts=[show_attempt(record) for record in one.attempts],
        routing=_find_decision(visitor, one),
        film=services.engine.videos.link_of_log(one.request_id, inbound.base_url) if one.operation == VIDEOS else "",
        words=_words,
        bodies=_find_bodies(visitor, one),
    )


def _show_row(one: LoggedRequest) -> dict[str, Any]:
    shown = show_request(one)
    return shown | {"at": to_datetime(one.at_us).strftime("%Y-%m-%d %H:%M:%S"), "tokens": _tokens(one)}


def _tokens(one: LoggedRequest) -> str:
    if one.attempts:
        return f"{one.input_tokens:,} / {one.output_tokens:,}"
    return ""


def _find_decision(visitor: Visitor, one: LoggedRequest) -> str:
    try:
        found = visitor.services.routing.decisions.find(f"proj_{one.owner.project.hex()}", one.request_id)
    except NotFound:
        return ""
    found.pop("attempts", None)
    return json.dumps(found, indent=2, ensure_ascii=False)


def _find_bodies(visitor: Visitor, one: LoggedRequest) -> list[tuple[str, str]]:
    if one.payload is None:
        return []
    kept = visitor.services.engine.retention.read(one.payload)
    return [
        ("Request", kept.sent.decode("utf-8", "replace")[:SHOWN]),
        ("Answer", kept.answer.decode("utf-8", "replace")[:SHOWN]),
    ]


def _words(name: str) -> str:
    """createdAt → Created at; the unit stands behind what costs."""
    text = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)
    text = text.replace("api key", "API key")
    return WORDS.get(name) or text[:1].upper() + text[1:]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return {True: "yes", False: "no"}.get(value, str(value))
    return str(value)


def _own_address(inbound: Inbound) -> str:
    if inbound.query:
        return f"{inbound.path}?{inbound.query}"
    return inbound.path


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", PATH, as_page(show_list)),
    Operation("GET", ONE, as_page(show_one)),
)
