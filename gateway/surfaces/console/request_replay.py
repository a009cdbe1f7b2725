"""`/console/logs/<id>/replay`: a logged request sent to another model, with the difference of the price before it is
sent and both answers beside each other afterwards.

The page's script sends it like any client, with a token for the visitor's key or with a key that is made for the page,
so it is paid, limited and logged as the visitor's own request. Each time is an entry of the audit log.
"""

from bisect import bisect
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson

from gateway.accounts import audit
from gateway.callers.authentication import Caller
from gateway.catalogue.prices import cost_of
from gateway.errors import Forbidden, GatewayError, InvalidRequest
from gateway.metering.log.records import LoggedRequest
from gateway.money import round_usd
from gateway.neutral.usage import Usage
from gateway.runtime.threads import compute_if
from gateway.surfaces.console.model_rows import list_rows
from gateway.surfaces.console.organization_choice import FIELD, CallerChoices
from gateway.surfaces.console.page_calls import CSRF_SUBJECT, PageCall, page_operations
from gateway.surfaces.console.pages import check_page
from gateway.surfaces.console.playground_models import name_models
from gateway.surfaces.console.playground_pages import KEYS, caller_of, read_own_choices
from gateway.surfaces.console.request_comparison import PATH as COMPARISON
from gateway.surfaces.console.visits import as_json, submitted_by_visitor
from gateway.surfaces.visitors import logged_runs
from gateway.surfaces.visitors import request_log_reader as request_log_reader_module
from gateway.surfaces.visitors.logged_runs import ENDPOINTS, RunEstimate, Selection
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.surfaces.web.http_responses import json_reply
from gateway.worker.services import Services

TITLE = "Replay elsewhere"
PATH = "/console/logs/<log_id>/replay"
BODY = f"{PATH}/body"
CHAT = "chat"
MAX_MODEL_LENGTH = 255
NEIGHBOURS = 6  # models that are listed with a lower price than the request had, and with a higher one
LARGE = 1 << 16
NOT_PAID = "You have no access to this project with which a request can be paid."
NOT_SENT = (
    "A request is sent again if its whole payload is retained, and if it is a chat of the APIs chat completions, "
    "responses or messages."
)


class OtherModel(NamedTuple):
    """A model with the price of the tokens that a request had."""

    model: str
    cost_nusd: int


def show(call: PageCall) -> Outbound:
    """Show what a request would cost at another model, and the button that sends it there."""
    request = _find(call.visitor, call.params["log_id"])
    choices = _read_choices(call.visitor, request, call.arguments.get(FIELD, ""))
    caller = caller_of(call.visitor, choices)
    project = choices.project
    assert project is not None
    model = call.arguments.get("model", "").strip()[:MAX_MODEL_LENGTH]
    names = name_models(list_rows(call.services, caller), CHAT)
    estimate: RunEstimate | None = None
    is_sendable = bool(_list_sendable(call.services, call.visitor, request))
    if model and is_sendable:
        try:
            estimate = _estimate(call, caller, request, model)
        except GatewayError as error:
            if error.blame != "caller":
                raise
            call = PageCall(call.visitor, call.inbound, error=error)
    base = urlsplit(call.inbound.base_url).path
    return call.page(
        "requests/replay.html",
        TITLE,
        log_id=request.request_id,
        request=request,
        field=FIELD,
        keys=[(key.id, key.description) for _, own in choices.groups for key in own],
        project=project,
        chosen=choices.chosen,
        model=model,
        names=names,
        is_sendable=is_sendable,
        not_sent=NOT_SENT,
        estimate=None if estimate is None else _show_estimate(estimate, request),
        others=_list_others(call.services, request, names),
        token_path=f"{base}{KEYS}",
        body_path=f"{base}{BODY.replace('<log_id>', request.request_id)}",
        api=base,
        comparison=f"{base}{COMPARISON}",
    )


def give_body(services: Services, inbound: Inbound) -> Outbound:
    """Return the path and the body with which a request is sent to another model, and note that in the audit log. The
    answer is JSON."""
    visitor, form = submitted_by_visitor(services, inbound, inbound.path, CSRF_SUBJECT)
    check_page(visitor, inbound.path)
    request = _find(visitor, inbound.params["log_id"])
    _read_choices(visitor, request, "")
    model = form.get("model", "").strip()[:MAX_MODEL_LENGTH]
    found = _list_sendable(services, visitor, request)
    if not (model and found):
        raise InvalidRequest(NOT_SENT)
    [line] = logged_runs.write_lines(services, found, request.path, model)
    body = compute_if(len(line) > LARGE, orjson.loads, line)["body"]
    _note(services, visitor, request, model)
    return json_reply({"path": request.path, "body": body}, inbound.shown_id)


def _note(services: Services, visitor: Visitor, request: LoggedRequest, model: str) -> None:
    database = services.store.database
    organization_id = f"org_{request.owner.organization.hex()}"
    visitor.member(organization_id)
    detail = {"project": f"proj_{request.owner.project.hex()}", "model": model}

    def work() -> None:
        audit.append(
            "request.replay",
            request.request_id,
            actor=visitor.user_id,
            at_us=database.now_us(),
            organization_id=organization_id,
            detail=detail,
        )

    database.write(work)


def _find(visitor: Visitor, ident: str) -> LoggedRequest:
    return request_log_reader_module.find_one(visitor, ident[:80])


def _read_choices(visitor: Visitor, request: LoggedRequest, chosen: str) -> CallerChoices:
    """Return the project of a request with the visitor's own keys in it. Raises Forbidden without access to it."""
    project_id = f"proj_{request.owner.project.hex()}"
    choices = read_own_choices(visitor, chosen or project_id)
    groups = tuple(group for group in choices.groups if group[0].id == project_id)
    if not groups or not visitor.may("keys:use", groups[0][0].organization_id):
        raise Forbidden(NOT_PAID)
    known = [project_id, *(key.id for key in groups[0][1])]
    return CallerChoices(groups, choices.chosen if choices.chosen in known else project_id)


def _list_sendable(services: Services, visitor: Visitor, request: LoggedRequest) -> list[LoggedRequest]:
    """Return the request if it can be sent again, [] otherwise."""
    if request.operation != CHAT or request.path not in ENDPOINTS:
        return []
    scopes = request_log_reader_module.scopes_of(visitor, f"proj_{request.owner.project.hex()}")
    return logged_runs.find_requests(services, scopes, [request.request_id])


def _estimate(call: PageCall, caller: Caller, request: LoggedRequest, model: str) -> RunEstimate:
    task = logged_runs.task_of(model, call.inbound.base_url, call.inbound.peer)
    return logged_runs.estimate(call.services, caller, Selection(request.path, [request], 0, 0), model, task)


def _show_estimate(estimate: RunEstimate, request: LoggedRequest) -> dict[str, Any]:
    likely = estimate.likely_nusd if estimate.requests else None
    return {
        "problem": estimate.problems[0][1] if estimate.problems else "",
        "bound_nusd": estimate.bound_nusd,
        "likely_nusd": likely,
        "difference": "" if likely is None else write_difference(likely, request.cost_nusd),
    }


def write_difference(likely_nusd: int, before_nusd: int) -> str:
    """Return how a likely cost differs from that of the request, such as "$0.02 less (40 %)"."""
    difference = likely_nusd - before_nusd
    if not difference:
        return "the same"
    share = f" ({abs(difference) * 100 // before_nusd:,} %)" if before_nusd else ""
    return f"{round_usd(abs(difference))} {'more' if difference > 0 else 'less'}{share}"


def _list_others(services: Services, request: LoggedRequest, names: list[str]) -> list[OtherModel]:
    """Return the models whose price for the tokens of a request is nearest to its cost, the lowest first."""
    prices = services.engine.chat.routes.prices
    usage = Usage(input=request.input_tokens, output=request.output_tokens)
    now_us = services.clock.now_us()
    priced = []
    for name in names:
        mappings = prices.mappings_of(name)
        if mappings and (request.input_tokens or request.output_tokens):
            priced.append(OtherModel(name, min(cost_of(usage, mapping, now_us).total for mapping in mappings)))
    priced.sort(key=lambda one: (one.cost_nusd, one.model))
    place = bisect([one.cost_nusd for one in priced], request.cost_nusd)
    return priced[max(0, place - NEIGHBOURS) : place + NEIGHBOURS]


OPERATIONS: tuple[Operation, ...] = (
    *page_operations(PATH, show),
    Operation("POST", BODY, as_json(give_body), body="form"),
)
