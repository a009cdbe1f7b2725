"""`/console/logs`: the request log with filters and a live view."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from gateway.accounts.members import list_members
from gateway.accounts.projects import list_projects
from gateway.callers.credential_sources import API_KEYS
from gateway.catalogue.entries import Provider
from gateway.errors import GatewayError, NotFound
from gateway.metering.log.records import LoggedRequest
from gateway.metering.usage_table import UsageRecord
from gateway.money import parse_usd
from gateway.routing.record import RoutingDecision
from gateway.runtime.threads import compute_if
from gateway.surfaces.console.grouping import NO_APP
from gateway.surfaces.console.page_calls import PageCall, page_operations
from gateway.surfaces.console.request_histogram import plot_requests
from gateway.surfaces.console.routing_pages import describe_decision
from gateway.surfaces.console.shown_conversation import ShownConversation, read_conversation, write_pretty
from gateway.surfaces.visitors import request_log_reader as request_log_reader_module
from gateway.surfaces.visitors.log_answers import show_attempt, show_request
from gateway.surfaces.visitors.request_log_reader import LogsPageQuery, LogsQuery
from gateway.surfaces.visitors.usage_report import apps_of, visible_keys
from gateway.surfaces.visitors.validation_schemas import read_query
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Operation, Outbound

# The waterfall of a request: when each upstream call began, when its first token came, and when it ended.

WIDTH = 1000  # units of the drawing, which is stretched to the page


class CallBar(Struct, frozen=True):
    """The bar of an upstream call. `x`, `waiting` and `streaming` are units of the drawing, times are in ms after the
    arrival of the request."""

    failed: bool
    x: float
    waiting: float
    streaming: float
    begins_ms: int
    ends_ms: int
    first_token_ms: int


class Waterfall(Struct, frozen=True):
    total_ms: int
    bars: tuple[CallBar, ...]


def draw_waterfall(arrived_us: int, attempts: Sequence[UsageRecord]) -> Waterfall:
    """Return the bars of the calls on a common scale that begins with the arrival of the request."""
    spans = []
    for attempt in attempts:
        begins = max(0, (attempt.at - arrived_us) // 1000)
        spans.append((attempt, begins, begins + attempt.duration_ms))
    total = max((end for _, _, end in spans), default=0) or 1
    bars = []
    for attempt, begins, end in spans:
        first = min(attempt.ttft_ms or attempt.duration_ms, attempt.duration_ms)
        bars.append(
            CallBar(
                bool(attempt.error),
                round(begins / total * WIDTH, 2),
                round(max(first / total * WIDTH, 2), 2),
                round((end - begins - first) / total * WIDTH, 2),
                begins,
                end,
                attempt.ttft_ms or 0,
            )
        )
    return Waterfall(total, tuple(bars))


# `/console/logs/<id>`: a request with the waterfall of its upstream calls, its cost, routing and payload.

REQUEST_PATH = "/console/logs/<log_id>"
# Name of a field of the log → label, unless the label follows from the name.
LABELS = {
    "finish": "Finish reason",
    "mode": "Paid by",
    "source": "App",
    "projectId": "Project",
    "apiKeyId": "API key",
    "dataStorageCost": "Data storage",
    "discountSavings": "Saved by discounts",
    "retained": "Payload kept",
    "requestId": "x-request-id",
}
PAID_BY = {API_KEYS: "your own provider key"}
VIDEOS = "videos"  # the operation with a file as its result
# Characters of a payload that a page shows; the management API returns the whole stored payload.
MAX_PAYLOAD_LENGTH = 65_536
# Fields that the page shows outside of the list of fields.
SHOWN_ELSEWHERE = (
    "metadata",
    "attempts",
    "id",
    "model",
    "served",
    "status",
    "cost",
    "durationMs",
    "createdAt",
    "error",
)
MONEY = ("dataStorageCost", "discountSavings")


def show_details(call: PageCall) -> Outbound:
    """Show a request with its upstream calls and their costs, the routing decision and the payload."""
    visitor = call.visitor
    request = request_log_reader_module.find_one(visitor, call.params["log_id"][:80])
    video_url = ""
    if request.operation == VIDEOS:
        video_url = call.services.engine.videos.link_of_log(request.request_id, call.inbound.base_url)
    log: dict[str, Any] = to_builtins(show_request(request))
    names = _names_of(visitor, log)
    facts = [(_label(name), _text(names.get(name, value))) for name, value in log.items() if _is_shown(name, value)]
    attempts = [to_builtins(show_attempt(record)) for record in request.attempts]
    decision = _find_decision(visitor, request)
    providers = {ident: one.name for ident, one in call.services.routing.catalogue.current().providers.items()}
    bodies, conversation = _find_bodies(visitor, request)
    return call.page(
        "requests/request.html",
        "Request",
        conversation=conversation,
        log=log,
        facts=facts,
        tags=sorted(request.tags.items()),
        attempts=attempts,
        waterfall=draw_waterfall(request.at_us, request.attempts),
        costs=_sum_costs(attempts),
        decision=decision,
        sentence=describe_decision(decision, providers) if decision else "",
        providers=providers,
        video_url=video_url,
        label=_label,
        manages=visitor.manages("projects:write"),
        bodies=bodies,
    )


def _sum_costs(attempts: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Return the label and the sum over all attempts of each component of the cost, the highest first."""
    sums: Counter[str] = Counter()
    for attempt in attempts:
        for name, usd in attempt["costs"].items():
            sums[_label(name)] += parse_usd(usd)
    return [(name, cost) for name, cost in sums.most_common() if cost]


def _is_shown(name: str, value: Any) -> bool:
    if name in SHOWN_ELSEWHERE or value is None:
        return False
    if name == "requestCount":
        return bool(value != 1)
    return name not in MONEY or value != "0"


def _names_of(visitor: Visitor, log: dict[str, Any]) -> dict[str, str]:
    """Return the project, provider, mode and key of a request by name."""
    names = {}
    for project in list_projects(visitor.services.store.database, list(visitor.memberships)):
        if project.id == log["projectId"]:
            names["projectId"] = project.name
    providers = visitor.services.routing.catalogue.current().providers
    names["provider"] = name_provider(log["provider"], providers)
    names["mode"] = PAID_BY.get(log["mode"], log["mode"])
    key = visible_keys(visitor).get(log["apiKeyId"])
    if key is not None:
        names["apiKeyId"] = key.description
    return names


def _find_decision(visitor: Visitor, request: LoggedRequest) -> RoutingDecision | None:
    try:
        return visitor.services.routing.decisions.find(f"proj_{request.owner.project.hex()}", request.request_id)
    except NotFound:
        return None


def _find_bodies(visitor: Visitor, request: LoggedRequest) -> tuple[list[tuple[str, str]], ShownConversation | None]:
    """Return the texts of the retained payload, and its conversation if it has one."""
    if request.payload is None:
        return [], None
    payload = visitor.services.engine.retention.read(request.payload)
    many = len(payload.sent) + len(payload.answer) > MAX_PAYLOAD_LENGTH
    return compute_if(many, _show_payload, payload.sent, payload.answer)


def _show_payload(sent: bytes, answer: bytes) -> tuple[list[tuple[str, str]], ShownConversation | None]:
    texts = [("Request", sent), ("Response", answer)]
    return [(name, write_pretty(body)[:MAX_PAYLOAD_LENGTH]) for name, body in texts], read_conversation(sent, answer)


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
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def name_provider(provider_id: str | None, providers: Mapping[str, Provider]) -> str:
    """Return the name of a provider, or the id of one that the catalogue does not know; "" without a provider."""
    known = providers.get(provider_id or "")
    if known is None:
        return provider_id or ""
    return known.name


TITLE = "Requests"
PATH = "/console/logs"
# Rows of a page, and of the live view, which is read again every second.
ROWS = 50
LIVE_ROWS = 25
LIST_ID = "list"
SUGGESTING = ("model", "provider", "status", "source")
SUGGESTED = 500  # names of a field at most
STATUSES = [(str(status.value), status.phrase) for status in HTTPStatus if status == HTTPStatus.OK or status >= 400]
# Name of a further filter → label and placeholder.
FURTHER_FILTERS = {
    "errorCode": ("Error code", "upstream_timeout"),
    "operation": ("Operation", "embeddings"),
    "requestId": ("x-request-id", ""),
    "metadata": ("Metadata", "team:search"),
    "session": ("Session", ""),
    "minDurationMs": ("A call took at least, ms", "10000"),
    "minCost": ("A call cost at least, USD", "0.1"),
    "from": ("From (UTC)", "2026-01-31T14:00"),
    "to": ("Before (UTC)", "2026-02-01"),
}
# The filters that a click sets or removes.
CHIPS = (("Failed", "failed", "true"), ("Slow", "minDurationMs", "10000"), ("Expensive", "minCost", "0.1"))
PERIODS = {"1h": "Last hour", "24h": "Last 24 hours", "7d": "Last 7 days", "30d": "Last 30 days"}
FILTERS = tuple(field.data_key or name for name, field in LogsQuery().fields.items())


def show_list(call: PageCall) -> Outbound:
    """Show the newest requests that match the filters, with a link to older requests."""
    visitor = call.visitor
    arguments = call.arguments
    live = arguments.get("live") == "1"
    shown: dict[str, Any] = {"rows": [], "older": ""}
    keys = {key.id: key.description for key in visible_keys(visitor).values()}
    people = _people_of(visitor)
    try:
        log_page = request_log_reader_module.read_page(
            visitor, read_query(LogsPageQuery, call.inbound), call.inbound, LIVE_ROWS if live else ROWS
        )
        names = {**keys, **{f"mem_{ident}": name for ident, (_, name) in people.items()}}
        providers = call.services.routing.catalogue.current().providers
        shown["rows"] = [_show_row(request, names, providers) for request in log_page.requests]
        cursor = request_log_reader_module.write_cursor(log_page)
        if cursor is not None and not live:
            shown["older"] = "?" + urlencode({**arguments, "cursor": cursor})
    except GatewayError as error:
        if error.blame != "caller":
            raise
        call = replace(call, error=error)
    suggestions: dict[str, list[tuple[str, str]]] = {key: [] for key in SUGGESTING}
    if call.inbound.header("hx-target") != LIST_ID:  # the live view reads only the list again
        suggestions = _suggest(call)
    chosen = {name: arguments[name] for name in FILTERS if name in arguments}
    turned = {**chosen, "live": "" if live else "1"}
    is_part = live or bool(arguments.get("cursor")) or call.error is not None
    return call.page(
        "requests/requests.html",
        TITLE,
        histogram=None if is_part else plot_requests(call, chosen),
        path=PATH,
        live=live,
        filters={name: arguments.get(name, "") for name in FILTERS},
        chosen=chosen,
        chips=[
            (label, "?" + urlencode(_toggle(chosen, name, value)), chosen.get(name) == value)
            for label, name, value in CHIPS
        ],
        switch="?" + urlencode({name: value for name, value in turned.items() if value}),
        projects=_projects_of(visitor),
        keys=sorted(keys.items(), key=lambda key: key[1].lower())[:SUGGESTED],
        people=sorted(set(people.values()), key=lambda person: person[1].lower())[:SUGGESTED],
        suggestions=suggestions,
        periods=list(PERIODS.items()),
        more=[(name, *texts) for name, texts in FURTHER_FILTERS.items()],
        export=urlencode(chosen),
        **shown,
    )


def _toggle(chosen: Mapping[str, str], name: str, value: str) -> dict[str, str]:
    """Return the filters with one set, or without it if it is set already."""
    others = {other: given for other, given in chosen.items() if other != name}
    return others if chosen.get(name) == value else {**others, name: value}


def _suggest(call: PageCall) -> dict[str, list[tuple[str, str]]]:
    """Return the values of the filters with their names."""
    catalogue = call.services.routing.catalogue.current()
    serving = {mapping.provider for model in catalogue.models.values() for mapping in model.mappings}
    apps = {part["id"] for parts in apps_of(call.visitor, {"timeRange": "30d"}).values() for part in parts}
    return {
        "model": [(ident, catalogue.models[ident].name) for ident in sorted(catalogue.models)],
        "provider": [(ident, catalogue.providers[ident].name) for ident in sorted(serving)],
        "status": STATUSES,
        "source": [("unknown", NO_APP), *((app, "") for app in sorted(apps - {""})[:SUGGESTED])],
    }


def _people_of(visitor: Visitor) -> dict[str, tuple[str, str]]:
    """Return the id of the user and the name of each visible person, by the raw id of the member."""
    people = {}
    for organization_id, own in visitor.memberships.items():
        members = [own]
        if visitor.manages("logs:read", organization_id):
            members = list_members(visitor.services.store.database, organization_id, service_accounts=True)
        for member in members:
            people[member.id.partition("_")[2]] = (member.user_id, member.name or member.email)
    return people


def _projects_of(visitor: Visitor) -> list[tuple[str, str]]:
    projects = list_projects(visitor.services.store.database, list(visitor.memberships))
    return [("", "All projects"), *((project.id, project.name) for project in projects)]


def _show_row(request: LoggedRequest, names: Mapping[str, str], providers: Mapping[str, Provider]) -> dict[str, Any]:
    row: dict[str, Any] = to_builtins(show_request(request))
    return {
        **row,
        "tokens": f"{request.input_tokens:,} / {request.output_tokens:,}" if request.attempts else "",
        "provider_name": name_provider(row["provider"], providers),
        "key": names.get(row["apiKeyId"], row["apiKeyId"]),
        "person": names.get(f"mem_{request.owner.member.hex()}", ""),
        "level": level_of(request.status),
    }


def show_short(call: PageCall, requests: Sequence[LoggedRequest]) -> list[dict[str, Any]]:
    """Return the rows of a short list of requests on another page."""
    providers = call.services.routing.catalogue.current().providers
    names = {key.id: key.description for key in visible_keys(call.visitor).values()}
    return [_show_row(request, names, providers) for request in requests]


def level_of(status: int) -> str:
    """Return the colour of a status: errors of callers are less urgent than those of providers."""
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "bad"
    if status >= HTTPStatus.BAD_REQUEST:
        return "warn"
    return "good"


OPERATIONS: tuple[Operation, ...] = (
    *page_operations(PATH, show_list),
    *page_operations(REQUEST_PATH, show_details),
)
