"""`/console/logs/compare`: two requests beside each other: figures, parameters, prompts and answers."""

from typing import Any
from urllib.parse import parse_qsl

from msgspec import to_builtins

from gateway.errors import GatewayError, InvalidRequest
from gateway.metering.log.records import LoggedRequest
from gateway.money import round_usd
from gateway.runtime.threads import compute_if
from gateway.surfaces.console.converted_chats import INLINE_BYTES, have_one_api, read_chat
from gateway.surfaces.console.earlier_requests import compare_requests
from gateway.surfaces.console.organization_choice import find_caller, read_choices
from gateway.surfaces.console.page_calls import PageCall, page_operations
from gateway.surfaces.console.prompt_changes import PromptDifference, compare_prompts
from gateway.surfaces.console.request_details import NO_PAYLOAD, ShownPayload, level_of, name_provider, read_shown
from gateway.surfaces.console.shown_figures import round_count, round_duration, show_change
from gateway.surfaces.visitors import request_log_reader as request_log_reader_module
from gateway.surfaces.visitors.log_answers import show_request
from gateway.surfaces.web.http import Operation, Outbound

TITLE = "Compare requests"
PATH = "/console/logs/compare"
FIELD = "request"
COMPARED = 2


def show(call: PageCall) -> Outbound:
    """Show two requests beside each other; with one, a field for the other."""
    asked = [value[:80] for name, value in parse_qsl(call.inbound.query) if name == FIELD and value]
    if len(asked) > COMPARED:
        raise InvalidRequest("Select two requests to compare them.")
    requests = [request_log_reader_module.find_one(call.visitor, ident.strip()) for ident in asked]
    return show_both(call, requests)


def show_both(call: PageCall, requests: list[LoggedRequest], **shown: Any) -> Outbound:
    """Show requests that the visitor may see beside each other. `shown` are further values of the template."""
    payloads = [read_shown(call.visitor, request) for request in requests]
    difference = _find_difference(call, requests)
    providers = call.services.routing.catalogue.current().providers
    logs: list[dict[str, Any]] = [to_builtins(show_request(request)) for request in requests]
    values = {
        "path": PATH,
        "logs": [
            {**log, "level": level_of(log["status"]), "provider_name": name_provider(log["provider"], providers)}
            for log in logs
        ],
        "rows": _list_figures(requests) if len(requests) == COMPARED else [],
        "difference": difference,
        "settings": _list_settings(payloads) if difference is None else difference.settings,
        "answers": [payload.conversation.answers if payload.conversation else [] for payload in payloads],
        "converted": len(requests) == COMPARED and not have_one_api(call, *requests),
        "retained": [payload is not NO_PAYLOAD for payload in payloads],
    }
    return call.page("requests/compare.html", TITLE, **{**values, **shown})


def _find_difference(call: PageCall, requests: list[LoggedRequest]) -> PromptDifference | None:
    if len(requests) != COMPARED or requests[1].payload is None:
        return None
    if not have_one_api(call, *requests):
        return _compare_apis(call, requests)
    try:
        sent = call.services.engine.retention.read(requests[1].payload).sent
    except GatewayError:  # it was deleted meanwhile
        return None
    return compare_requests(call.visitor, requests[0], sent)


def _compare_apis(call: PageCall, requests: list[LoggedRequest]) -> PromptDifference | None:
    """Return the differences of two chats of different APIs, both read as chat completions."""
    chats = []
    for request in requests:
        choices = read_choices(call.visitor, f"proj_{request.owner.project.hex()}")
        try:
            caller = find_caller(call.visitor, choices)
            if caller is None:
                return None
            chats.append(read_chat(call, caller, request)[0])
        except GatewayError as error:
            if error.blame != "caller":
                raise
            return None
    size = sum(request.payload.sent_bytes for request in requests if request.payload is not None)
    return compute_if(size > INLINE_BYTES, compare_prompts, *chats)


def _list_settings(payloads: list[ShownPayload]) -> list[tuple[str, str, str]]:
    """Return the parameters that differ between two requests that are no chats."""
    shown = [dict(payload.conversation.settings) if payload.conversation else {} for payload in payloads]
    if len(shown) != COMPARED:
        return []
    one, other = shown
    names = dict.fromkeys((*one, *other))
    return [
        (name, one.get(name, ""), other.get(name, "")) for name in names if one.get(name, "") != other.get(name, "")
    ]


def _list_figures(requests: list[LoggedRequest]) -> list[tuple[str, str, str, str]]:
    """Return label, both values, and how the second one differs."""
    rows = []
    for label, values, write in (
        ("Cost", [one.cost_nusd for one in requests], round_usd),
        ("Input tokens", [one.input_tokens for one in requests], round_count),
        ("Read from the cache", [_sum(one, "cache_read") for one in requests], round_count),
        ("Written to the cache", [_sum(one, "cache_write") for one in requests], round_count),
        ("Output tokens", [one.output_tokens for one in requests], round_count),
        ("Reasoning tokens", [_sum(one, "reasoning") for one in requests], round_count),
        ("Duration", [one.duration_ms for one in requests], round_duration),
        ("First token after", [one.last.ttft_ms if one.last else 0 for one in requests], round_duration),
        ("Upstream calls", [len(one.attempts) for one in requests], str),
    ):
        before, after = values
        if before or after:
            rows.append(
                (label, write(before), write(after), show_change(after, before) if before and after != before else "")
            )
    return rows


def _sum(request: LoggedRequest, column: str) -> int:
    return sum(getattr(attempt, column) for attempt in request.attempts)


OPERATIONS: tuple[Operation, ...] = page_operations(PATH, show)
