"""POST /v1/rerank."""

from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.json import Decoder

from gateway.dialects.field_names import restate
from gateway.errors import NotSupported
from gateway.neutral.request import Options, Requirements
from gateway.neutral.rerank import RerankInput, RerankRequest, RerankResult, units_of
from gateway.surfaces import auth, caps, http_responses
from gateway.surfaces.facts import Facts, headers_of
from gateway.surfaces.http import About, Inbound, Operation, Outbound
from gateway.surfaces.json_bodies import read_json
from gateway.surfaces.openai import shapes
from gateway.surfaces.preference_checks import Routing, read_preferences
from gateway.worker.services import Services

Json = dict[str, Any]
ID_PREFIX = "rerank-"
Text = Annotated[str, Meta(min_length=1)]


class RerankBody(Struct, kw_only=True, gc=False):
    """Every field that has an effect; all others are accepted and dropped."""

    model: Text
    query: Text
    documents: Annotated[list[str], Meta(min_length=1, max_length=10_000)]
    top_n: Annotated[int, Meta(ge=1)] | None = None
    return_documents: bool = False
    routing: Routing = None


def rerank(services: Services, inbound: Inbound) -> Outbound:
    """Rank the documents by their relevance to the query, the best first."""
    context = auth.admit(services, inbound, RerankRequest.operation)
    body = read_json(services.settings.limits, DECODER, inbound.body, {})
    try:
        answer = services.engine.executor.generate(context, read(body, len(inbound.body)))
    except NotSupported as error:
        raise restate(error, "rerank") from error
    facts = Facts(context, answer.outcome, ID_PREFIX + context.request_id)
    headers = headers_of(facts, services.clock, streamed=False)
    return http_responses.result_reply(answer.result, write, body, facts, request_id=context.shown_id, headers=headers)


def read(body: RerankBody, size: int) -> RerankRequest:
    """Return the neutral request."""
    wanted = RerankInput(body.query, tuple(body.documents))
    longest = max(len(one.encode("utf-8", "replace")) for one in body.documents)
    needs = Requirements(
        max_tokens=0,
        prompt_bytes=0,  # `units` hold the tokens read: the query counts once for each document
        longest_input=longest + len(body.query.encode("utf-8", "replace")),
        messages=len(body.documents),
        units=units_of(wanted),
    )
    return RerankRequest(
        body.model, needs, lambda: wanted, Options(**read_preferences(routing=body.routing)), large=size >= caps.LARGE
    )


def write(result: RerankResult, body: RerankBody, facts: Facts) -> Json:
    """Return the response in the documented shape; `top_n` is applied here, however many results the provider sent."""
    best = sorted(result.scores, key=lambda one: (-one[1], one[0]))[: body.top_n or len(result.scores)]
    rows = []
    for index, score in best:
        row: Json = {"index": index, "relevance_score": score}
        if body.return_documents:
            row["document"] = body.documents[index]
        rows.append(row)
    used = facts.usage
    units: Json = {"input_tokens": used.input_total, "total_tokens": used.input_total + used.output_total}
    if used.searches:
        units["search_units"] = used.searches
    return {
        "id": facts.answer_id,
        "model": facts.served,
        "results": rows,
        "meta": {"api_version": {"version": "1"}, "billed_units": units},
        "usage": facts.cost(),
        "metadata": facts.metadata(),
    }


DECODER = Decoder(RerankBody)
ABOUT = About("Rank documents by relevance to a query", request=RerankBody, answer=shapes.RERANK)
OPERATIONS = (Operation("POST", "/v1/rerank", rerank, body="json", paid=True, about=ABOUT),)
