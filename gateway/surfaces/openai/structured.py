"""Shared handling of operations with a single JSON response: admission, the call, and the response with its model,
usage and metadata."""

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType, json
from msgspec.json import Decoder

from gateway.neutral.hosted_uses import NO_USES, HostedUse
from gateway.neutral.request import Options, Requirements
from gateway.neutral.structured import StructuredRequest, StructuredResult
from gateway.neutral.usage import Units
from gateway.surfaces.bodies.preference_checks import read_preferences
from gateway.surfaces.bodies.validation_errors import read_json
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import caps as caps_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.answer_structs import ModelApiAnswer
from gateway.surfaces.web.facts import CostDetails, Facts, headers_of
from gateway.surfaces.web.http import Inbound, Outbound
from gateway.worker.services import Services

Json = dict[str, Any]
Body = TypeVar("Body")


class TokensUsedAnswer(ModelApiAnswer, kw_only=True):
    """Tokens in and out, and their cost in US dollars. Speech also has their sum."""

    input_tokens: int
    output_tokens: int
    total_tokens: int | UnsetType = UNSET
    cost: float
    is_byok: bool
    cost_details: CostDetails


def answer(
    services: Services,
    inbound: Inbound,
    kind: type[StructuredRequest],
    decoder: Decoder[Body],
    read: Callable[[Body], tuple[Json, Units | None]],
    prefix: str,
    write: Callable[[Json, Facts], Json],
    count_images: Callable[[Body], int] = lambda body: 0,
    uses_of: Callable[[Body], tuple[HostedUse, ...]] = lambda body: NO_USES,
) -> Outbound:
    """Return the response of one such operation. `read` returns the upstream body for the validated body (without the
    model) and its units; `write` adds the gateway's members to the provider's response; `count_images` returns the
    number of images, `uses_of` what the body names at the provider beside the model."""
    context = auth_module.admit(services, inbound, kind.operation)
    raw = inbound.body
    body: Any = read_json(services.settings.limits, decoder, raw)
    sent, units = read(body)
    needs = Requirements(
        max_tokens=0,
        prompt_bytes=len(raw),
        messages=1,
        units=units,
        media=count_images(body),
        hosted_uses=uses_of(body),
    )
    request = kind(
        body.model,
        needs,
        lambda: sent,
        Options(**read_preferences(routing=body.routing)),
        large=len(raw) >= caps_module.LARGE,
    )
    answer = services.engine.executor.generate(context, request)
    facts = Facts(context, answer.outcome, prefix + context.request_id)
    headers = headers_of(facts, services.clock, streamed=False)

    def write_body(result: StructuredResult) -> bytes:
        return json.encode(write(result.body, facts))

    return http_responses_module.result_reply(answer.result, write_body, request_id=context.shown_id, headers=headers)


def write_tokens(facts: Facts) -> TokensUsedAnswer:
    """Return the usage of an operation that reads and may write text, with its cost."""
    used = facts.usage
    return TokensUsedAnswer(input_tokens=used.input_total, output_tokens=used.output_total, **facts.cost())
