"""`/console/logs/<id>`: a request as a conversation, with its upstream calls, its cost, and what changed since the turn
before."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import orjson
from msgspec import Struct, to_builtins

from gateway.callers.credential_sources import API_KEYS
from gateway.catalogue.entries import Provider
from gateway.errors import NotFound
from gateway.metering.log.records import LoggedRequest
from gateway.metering.usage_table import UsageRecord
from gateway.money import parse_usd
from gateway.routing.record import RoutingDecision
from gateway.runtime.threads import compute_if
from gateway.surfaces.console.earlier_requests import find_turn_before
from gateway.surfaces.console.page_calls import PageCall, page_operations
from gateway.surfaces.console.request_sharing import end_link, make_link, show_links
from gateway.surfaces.console.routing_pages import describe_decision
from gateway.surfaces.console.shown_conversation import ShownConversation, write_pretty
from gateway.surfaces.console.shown_figures import show_time
from gateway.surfaces.console.shown_operations import is_text, read_payload
from gateway.surfaces.management.share_routes import draft_of_request
from gateway.surfaces.visitors import request_log_reader as request_log_reader_module
from gateway.surfaces.visitors.log_answers import show_attempt, show_request
from gateway.surfaces.visitors.resent_requests import can_resend
from gateway.surfaces.visitors.usage_report import visible_keys
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
INLINE_BYTES = 32_768  # beyond it, a payload is read in a thread
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


class ShownBody(Struct, frozen=True):
    """A body as text. `note` says what of it is not shown, "" if all of it is."""

    name: str
    text: str
    note: str


class ShownPayload(Struct, frozen=True):
    """The retained payload of a request: its conversation if it has one, and the bodies as they were sent."""

    conversation: ShownConversation | None = None
    bodies: tuple[ShownBody, ...] = ()


NO_PAYLOAD = ShownPayload()


def show_details(call: PageCall) -> Outbound:
    """Show a request with its upstream calls and their costs, the routing decision and the payload."""
    return show_found(call, _find(call))


def share(call: PageCall) -> str:
    """Make a link by which colleagues see the request."""
    return make_link(call, draft_of_request(_find(call), call.visitor))


def unshare(call: PageCall) -> str:
    """End a link to the request."""
    return end_link(call, draft_of_request(_find(call), call.visitor))


def _find(call: PageCall) -> LoggedRequest:
    return request_log_reader_module.find_one(call.visitor, call.params["log_id"][:80])


def show_found(
    call: PageCall, request: LoggedRequest, shared: Mapping[str, Any] | None = None, with_payload: bool = True
) -> Outbound:
    """Show a request that the visitor may see. `shared` describes the link by which it was opened, if by one."""
    visitor = call.visitor
    video_url = ""
    if request.operation == VIDEOS and with_payload:
        video_url = call.services.engine.videos.link_of_log(request.request_id, call.inbound.base_url)
    log: dict[str, Any] = to_builtins(show_request(request))
    names = _names_of(visitor, log)
    facts = [
        (_label(name), _show_fact(name, names.get(name, value)))
        for name, value in log.items()
        if _is_shown(name, value)
    ]
    attempts = [to_builtins(show_attempt(record)) for record in request.attempts]
    decision = _find_decision(visitor, request)
    providers = {ident: one.name for ident, one in call.services.routing.catalogue.current().providers.items()}
    values = {
        "log": log,
        "facts": facts,
        "tags": sorted(request.tags.items()),
        "attempts": attempts,
        "waterfall": draw_waterfall(request.at_us, request.attempts),
        "costs": _sum_costs(attempts),
        "decision": decision,
        "sentence": describe_decision(decision, providers) if decision else "",
        "providers": providers,
        "video_url": video_url,
        "label": _label,
        "manages": visitor.manages("projects:write"),
        "payload": read_shown(visitor, request) if with_payload else NO_PAYLOAD,
        "shared": shared,
        "links": [] if shared else show_links(call, draft_of_request(request, visitor)),
        "resendable": can_resend(call.services, request),
        "session_query": urlencode({"projectId": log["projectId"], "session": request.session}),
    }
    return call.page("requests/request.html", "Request", **values)


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
    for project in visitor.projects():
        if project.id == log["projectId"]:
            names["projectId"] = project.name
    providers = visitor.services.routing.catalogue.current().providers
    names["provider"] = name_provider(log["provider"], providers)
    names["mode"] = PAID_BY.get(log["mode"], log["mode"])
    for key in visible_keys(visitor, [log["apiKeyId"]]).values():
        names["apiKeyId"] = key.description
    return names


def _find_decision(visitor: Visitor, request: LoggedRequest) -> RoutingDecision | None:
    try:
        return visitor.services.routing.decisions.find(f"proj_{request.owner.project.hex()}", request.request_id)
    except NotFound:
        return None


def read_shown(visitor: Visitor, request: LoggedRequest) -> ShownPayload:
    """Return the retained payload of a request as a page shows it."""
    info = request.payload
    if info is None:
        return NO_PAYLOAD
    payload = visitor.services.engine.retention.read(info)
    raw = orjson.dumps(payload.raw) if payload.raw else b""
    large = len(payload.sent) + len(payload.answer) + len(raw) > INLINE_BYTES
    sizes = (info.sent_bytes, info.answer_bytes, len(raw))
    return compute_if(large, _show_payload, request.operation, (payload.sent, payload.answer, raw), sizes)


def _show_payload(operation: str, bodies: tuple[bytes, bytes, bytes], sizes: tuple[int, int, int]) -> ShownPayload:
    sent, answer, raw = bodies
    names = ("Request, as it was sent", "Response, as it was received", "Exchange with the provider")
    shown = [_show_body(*body) for body in zip(names, bodies, sizes, strict=True) if body[1] or body[0] != names[2]]
    return ShownPayload(read_payload(operation, sent, answer), tuple(shown)) if sent or answer or raw else NO_PAYLOAD


def _show_body(name: str, body: bytes, size: int) -> ShownBody:
    if not is_text(body):
        return ShownBody(name, "", f"{size:,} bytes that are no text")
    text = write_pretty(body)
    note = f"Only the first {len(body):,} of {size:,} bytes were stored." if size > len(body) else ""
    if len(text) > MAX_PAYLOAD_LENGTH:
        note = f"{note} The first {MAX_PAYLOAD_LENGTH:,} of {len(text):,} characters are shown.".strip()
    return ShownBody(name, text[:MAX_PAYLOAD_LENGTH], note)


# `/console/logs/<id>/changes`: the differences to the turn before, which the page of a request loads when it is shown.

CHANGES_PATH = f"{REQUEST_PATH}/changes"


def show_changes(call: PageCall) -> Outbound:
    """Show what a request adds to the turn before, and where its prompt leaves that of the turn before."""
    request = _find(call)
    earlier = find_turn_before(call.visitor, request)
    return call.page(
        "requests/changes.html",
        "Changes since the turn before",
        log_id=request.request_id,
        retained=request.payload is not None,
        earlier=None if earlier is None else to_builtins(show_request(earlier.request)),
        difference=None if earlier is None else earlier.difference,
        cached_tokens=sum(one.cache_read for one in request.attempts),
        cached_before=0 if earlier is None else sum(one.cache_read for one in earlier.request.attempts),
    )


def _label(name: str) -> str:
    """Return the label of a field, for example "Created at" for "createdAt"."""
    label = LABELS.get(name)
    if label is not None:
        return label
    words = re.sub("([A-Z])", r" \1", name).lower().replace("api key", "API key")
    return words[:1].upper() + words[1:]


def _show_fact(name: str, value: object) -> str:
    if name in MONEY:
        return f"${value}"
    if name == "expiresAt":
        return show_time(str(value))
    return _text(value)


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


def level_of(status: int) -> str:
    """Return the colour of a status: errors of callers are less urgent than those of providers."""
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "bad"
    if status >= HTTPStatus.BAD_REQUEST:
        return "warn"
    return "good"


OPERATIONS: tuple[Operation, ...] = (
    *page_operations(REQUEST_PATH, show_details, {"share": share, "unshare": unshare}),
    *page_operations(CHANGES_PATH, show_changes),
)
