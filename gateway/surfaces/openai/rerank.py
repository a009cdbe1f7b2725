"""POST /v1/rerank."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.json import Decoder

from gateway.dialects.field_names import restate
from gateway.errors import NotSupported
from gateway.neutral.request import Options, Requirements
from gateway.neutral.structured import RerankInput, RerankRequest, RerankResult, units_of
from gateway.surfaces.bodies.preference_checks import Routing, read_preferences
from gateway.surfaces.bodies.validation_errors import read_json
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import caps as caps_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.answer_structs import JsonObject, ModelApiAnswer
from gateway.surfaces.web.facts import CostDetails, Facts, RoutingMetadata, headers_of
from gateway.surfaces.web.http import About, Inbound, Operation, Outbound
from gateway.worker.services import Services

ID_PREFIX = "rerank-"
Text = Annotated[str, Meta(min_length=1)]


class RerankBody(Struct, kw_only=True, gc=False):
    """Every field that has an effect; all others are accepted and dropped. `top_k` is `top_n` in Voyage's format, in
    which `truncation` is always sent."""

    model: Text
    query: Text
    documents: Annotated[list[str], Meta(min_length=1, max_length=10_000)]
    top_n: Annotated[int, Meta(ge=1)] | None = None
    top_k: Annotated[int, Meta(ge=1)] | None = None
    truncation: bool | None = None
    return_documents: bool = False
    routing: Routing = None


class RerankScoreAnswer(ModelApiAnswer):
    index: int
    relevance_score: float
    document: str | UnsetType = UNSET


class RerankUnitsAnswer(ModelApiAnswer):
    input_tokens: int
    total_tokens: int
    search_units: int | UnsetType = UNSET


class RerankMetaAnswer(ModelApiAnswer):
    api_version: JsonObject
    billed_units: RerankUnitsAnswer


class RerankCostAnswer(ModelApiAnswer):
    cost: float
    is_byok: bool
    cost_details: CostDetails
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class RerankedAnswer(ModelApiAnswer):
    """`data` has the `results` for clients of Voyage."""

    id: str
    model: str
    results: list[RerankScoreAnswer]
    meta: RerankMetaAnswer
    usage: RerankCostAnswer
    metadata: RoutingMetadata
    data: list[RerankScoreAnswer] | UnsetType = UNSET


def rerank(services: Services, inbound: Inbound) -> Outbound:
    """Rank the documents by their relevance to the query, the best first."""
    context = auth_module.admit(services, inbound, RerankRequest.operation)
    body = read_json(services.settings.limits, DECODER, inbound.body)
    try:
        answer = services.engine.executor.generate(context, read_rerank(body, len(inbound.body)))
    except NotSupported as error:
        raise restate(error, "rerank") from error
    facts = Facts(context, answer.outcome, ID_PREFIX + context.request_id)
    headers = headers_of(facts, services.clock, streamed=False)
    return http_responses_module.result_reply(
        answer.result, write, body, facts, request_id=context.shown_id, headers=headers
    )


def read_rerank(body: RerankBody, size: int) -> RerankRequest:
    """Return the neutral request."""
    content = RerankInput(body.query, tuple(body.documents))
    longest = max(len(document.encode("utf-8", "replace")) for document in body.documents)
    needs = Requirements(
        max_tokens=0,
        prompt_bytes=0,  # `units` hold the tokens read: the query counts once for each document
        longest_input=longest + len(body.query.encode("utf-8", "replace")),
        messages=len(body.documents),
        units=units_of(content),
    )
    return RerankRequest(
        body.model,
        needs,
        lambda: content,
        Options(**read_preferences(routing=body.routing)),
        large=size >= caps_module.LARGE,
    )


def write(result: RerankResult, body: RerankBody, facts: Facts) -> bytes:
    """Return the response in the documented shape; `top_n` is applied here, however many results the provider sent."""
    maximum = body.top_n or body.top_k or len(result.scores)
    best = sorted(result.scores, key=lambda score: (-score[1], score[0]))[:maximum]
    rows = []
    for index, score in best:
        row = RerankScoreAnswer(index, score)
        if body.return_documents:
            row.document = body.documents[index]
        rows.append(row)
    usage = facts.usage
    total = usage.input_total + usage.output_total
    units = RerankUnitsAnswer(usage.input_total, total, usage.searches or UNSET)
    meta = RerankMetaAnswer({"version": "1"}, units)
    cost = RerankCostAnswer(
        **facts.cost(), prompt_tokens=usage.input_total, completion_tokens=usage.output_total, total_tokens=total
    )
    data = UNSET if body.truncation is None and body.top_k is None else rows
    answer = RerankedAnswer(facts.answer_id, facts.served, rows, meta, cost, facts.metadata(), data)
    return answer.encode()


DECODER = Decoder(RerankBody)
ABOUT = About(
    "Rank documents by relevance to a query",
    request=RerankBody,
    answer=RerankedAnswer,
    example={"model": "auto", "query": "tea", "documents": ["Green tea", "A garden spade"]},
)
OPERATIONS = (Operation("POST", "/v1/rerank", rerank, body="json", paid=True, about=ABOUT),)
