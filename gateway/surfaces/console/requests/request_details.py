"""`/console/logs/<id>`: a request with the waterfall of its upstream calls, its cost, routing and payload."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins

from gateway.accounts.project_modes import API_KEYS
from gateway.accounts.projects import list_projects
from gateway.catalogue.entries import Provider
from gateway.errors import NotFound
from gateway.metering.log.records import LoggedRequest
from gateway.money import parse_usd
from gateway.routing.record import RoutingDecision
from gateway.surfaces import request_log_reader
from gateway.surfaces.console.page_calls import PageCall
from gateway.surfaces.console.requests.routing_text import describe_decision
from gateway.surfaces.console.requests.waterfall import draw_waterfall
from gateway.surfaces.http import Outbound
from gateway.surfaces.log_answers import show_attempt, show_request
from gateway.surfaces.usage_report import visible_keys
from gateway.surfaces.visitor import Visitor

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
    request = request_log_reader.find_one(visitor, call.params["log_id"][:80])
    video_url = ""
    if request.operation == VIDEOS:
        video_url = call.services.engine.videos.link_of_log(request.request_id, call.inbound.base_url)
    log: dict[str, Any] = to_builtins(show_request(request))
    names = _names_of(visitor, log)
    facts = [(_label(name), _text(names.get(name, value))) for name, value in log.items() if _is_shown(name, value)]
    attempts = [to_builtins(show_attempt(record)) for record in request.attempts]
    decision = _find_decision(visitor, request)
    providers = {ident: one.name for ident, one in call.services.routing.catalogue.current().providers.items()}
    return call.page(
        "requests/request.html",
        "Request",
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
        bodies=_find_bodies(visitor, request),
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


def _find_bodies(visitor: Visitor, request: LoggedRequest) -> list[tuple[str, str]]:
    if request.payload is None:
        return []
    payload = visitor.services.engine.retention.read(request.payload)
    return [
        ("Request", payload.sent.decode("utf-8", "replace")[:MAX_PAYLOAD_LENGTH]),
        ("Response", payload.answer.decode("utf-8", "replace")[:MAX_PAYLOAD_LENGTH]),
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
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def name_provider(provider_id: str | None, providers: Mapping[str, Provider]) -> str:
    """Return the name of a provider, or the id of one that the catalogue does not know; "" without a provider."""
    known = providers.get(provider_id or "")
    if known is None:
        return provider_id or ""
    return known.name
