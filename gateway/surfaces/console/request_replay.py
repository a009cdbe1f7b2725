"""`/console/logs/<id>/replay`: a logged request sent to another model, with the difference of the price before it is
sent and both answers beside each other afterwards.

The page's script sends it like any client, with a token for the visitor's key or with a key that is made for the page,
so it is paid, limited and logged as the visitor's own request. Each time is an entry of the audit log.
"""

from bisect import bisect
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from msgspec import structs

from gateway.accounts import audit
from gateway.billing.rerating import usage_of_row
from gateway.catalogue.prices import cost_of
from gateway.engine.request_reading import ReadRequest
from gateway.errors import Forbidden, GatewayError, InvalidRequest
from gateway.metering.log.records import LoggedRequest
from gateway.money import round_usd
from gateway.neutral.chat import ChatRequest
from gateway.neutral.parts import Reasoning
from gateway.neutral.request import Request
from gateway.surfaces.console.model_rows import list_rows
from gateway.surfaces.console.organization_choice import FIELD, CallerChoices
from gateway.surfaces.console.page_calls import CSRF_SUBJECT, PageCall, page_operations
from gateway.surfaces.console.pages import check_page
from gateway.surfaces.console.playground_models import name_models
from gateway.surfaces.console.playground_pages import KEYS, caller_of, read_own_choices
from gateway.surfaces.console.request_comparison import PATH as COMPARISON
from gateway.surfaces.console.visits import as_json, submitted_by_visitor
from gateway.surfaces.visitors import request_log_reader as request_log_reader_module
from gateway.surfaces.visitors import resent_requests
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.surfaces.web.http_responses import json_reply
from gateway.worker.services import Services

TITLE = "Replay elsewhere"
PATH = "/console/logs/<log_id>/replay"
BODY = f"{PATH}/body"
MAX_MODEL_LENGTH = 255
NEIGHBOURS = 6  # models that are listed with a lower price than the request had, and with a higher one
NOT_PAID = "You have no access to this project with which a request can be paid."


class OtherModel(NamedTuple):
    """A model with the price of the tokens that a request had."""

    model: str
    cost_nusd: int


def show(call: PageCall) -> Outbound:
    """Show what a request would cost at another model, and the button that sends it there."""
    services = call.services
    request = _find(call.visitor, call.params["log_id"])
    choices = _read_choices(call.visitor, request, call.arguments.get(FIELD, ""))
    caller = caller_of(call.visitor, choices)
    project = choices.project
    assert project is not None
    model = call.arguments.get("model", "").strip()[:MAX_MODEL_LENGTH]
    names = name_models(list_rows(services, caller), request.operation)
    refusal = ""
    read: ReadRequest | None = None
    try:
        resent = resent_requests.prepare(services, request, model or request.asked)
        if model:
            read = resent_requests.port_of(services).read(caller, resent, call.inbound.base_url, call.inbound.peer)
    except GatewayError as error:
        if error.blame != "caller":
            raise
        refusal = error.message
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
        refusal=refusal,
        estimate=None if read is None else _show_estimate(services, read, request, model),
        others=_list_others(services, request, names),
        token_path=f"{base}{KEYS}",
        body_path=f"{base}{BODY.replace('<log_id>', request.request_id)}",
        api=base,
        comparison=f"{base}{COMPARISON}",
    )


def give_body(services: Services, inbound: Inbound) -> Outbound:
    """Return the path, the headers and the body with which a request is sent to another model, and note that in the
    audit log. The answer is JSON."""
    visitor, form = submitted_by_visitor(services, inbound, inbound.path, CSRF_SUBJECT)
    check_page(visitor, inbound.path)
    request = _find(visitor, inbound.params["log_id"])
    _read_choices(visitor, request, "")
    model = form.get("model", "").strip()[:MAX_MODEL_LENGTH]
    if not model:
        raise InvalidRequest("Choose a model.", param="model")
    resent = resent_requests.prepare(services, request, model)
    _note(services, visitor, request, model)
    path = quote(resent.path, safe="/:")  # the name of the model may be a part of it
    return json_reply({"path": path, "headers": resent.headers, "body": resent.body}, inbound.shown_id)


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


def _show_estimate(services: Services, read: ReadRequest, request: LoggedRequest, model: str) -> dict[str, Any]:
    """Return the cost at a model, what the model gets without, and why it cannot be sent there ("" if it can)."""
    likely = _price(services, request, model)
    return {
        "problem": "" if read.error is None else read.error.message,
        "bound_nusd": read.bound_nusd,
        "likely_nusd": likely,
        "difference": "" if likely is None else write_difference(likely, request.cost_nusd),
        "signed_by": _list_signers(read.request),
    }


def _list_signers(request: Request | None) -> list[str]:
    """Return the vendors whose signatures and encrypted reasoning a chat contains: no other vendor's model reads
    them."""
    if not isinstance(request, ChatRequest):
        return []
    try:
        messages = request.conversation().messages
    except GatewayError:
        return []
    parts = (part for message in messages for part in message.parts)
    return sorted(
        {
            part.vendor
            for part in parts
            if isinstance(part, Reasoning) and part.vendor and (part.signature or part.sealed)
        }
    )


def write_difference(likely_nusd: int, before_nusd: int) -> str:
    """Return how a likely cost differs from that of the request, such as "$0.02 less (40 %)"."""
    difference = likely_nusd - before_nusd
    if not difference:
        return "the same"
    share = f" ({abs(difference) * 100 // before_nusd:,} %)" if before_nusd else ""
    return f"{round_usd(abs(difference))} {'more' if difference > 0 else 'less'}{share}"


def _price(services: Services, request: LoggedRequest, model: str) -> int | None:
    """Return the price of what a request used at the cheapest provider of a model, without prompt caches; None where
    that is not known: for a route, a price by other units, or a request that used nothing."""
    mappings = services.engine.chat.routes.prices.mappings_of(model)
    if not mappings or request.last is None:
        return None
    used = usage_of_row(request.last, request.last.details)
    text = used.input + used.cache_read + used.cache_write + used.cache_write_1h
    usage = structs.replace(used, input=text, cache_read=0, cache_write=0, cache_write_1h=0)
    now_us = services.clock.now_us()
    prices = [cost_of(usage, mapping, now_us).total for mapping in mappings if request.operation in mapping.operations]
    # A price of zero is that of a free model, or of a model that is billed by what the request did not count.
    return min((price for price in prices if price), default=0 if _is_free(services, model) and prices else None)


def _is_free(services: Services, model: str) -> bool:
    known = services.routing.catalogue.current().models.get(model)
    return known is not None and known.free


def _list_others(services: Services, request: LoggedRequest, names: list[str]) -> list[OtherModel]:
    """Return the models whose price for what a request used is nearest to its cost, the lowest first."""
    priced = [OtherModel(name, cost) for name in names if (cost := _price(services, request, name)) is not None]
    priced.sort(key=lambda one: (one.cost_nusd, one.model))
    place = bisect([one.cost_nusd for one in priced], request.cost_nusd)
    return priced[max(0, place - NEIGHBOURS) : place + NEIGHBOURS]


OPERATIONS: tuple[Operation, ...] = (
    *page_operations(PATH, show),
    Operation("POST", BODY, as_json(give_body), body="form"),
)
