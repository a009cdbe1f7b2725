"""POST /v1/fim/completions: fills the gap between a prompt and a suffix, in Mistral's format.

The request is a text completion, the answer a chat completion.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from msgspec import structs
from msgspec.json import Decoder

from gateway.billing.context import RequestContext
from gateway.dialects.field_names import restate
from gateway.errors import NotSupported
from gateway.neutral.chat import ChatRequest, ChatResult, Choice
from gateway.neutral.events import Batch
from gateway.neutral.parts import Text
from gateway.runtime.threads import compute_if
from gateway.surfaces.bodies import validation_errors as json_bodies_module
from gateway.surfaces.openai import chat_writer, completions
from gateway.surfaces.openai.chat_answers import ID_PREFIX, ChatCompletion, ChatCompletionChunk
from gateway.surfaces.openai.completions_writer import UnfencedStream, without_fence
from gateway.surfaces.web import attribution as attribution_module
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import caps as caps_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.facts import Facts, headers_of
from gateway.surfaces.web.http import About, Inbound, Operation, Outbound
from gateway.worker.services import Services


class FillBody(completions.CompletionFields, kw_only=True, gc=False):
    """Every field that has an effect; all others of the wire format (random_seed, min_tokens) are accepted and
    dropped."""

    prompt: str
    metadata: Any = None  # an object is kept with the request, any other type has no effect


DECODER = Decoder(FillBody)


def complete(services: Services, inbound: Inbound) -> Outbound:
    """Fill the gap between a prompt and a suffix; the answer is a chat completion, complete or streamed."""
    try:
        return _complete(services, inbound)
    except NotSupported as error:
        raise restate(error, "completions") from error


def _complete(services: Services, inbound: Inbound) -> Outbound:
    context = auth_module.admit(services, inbound, "chat", "completions")
    raw = inbound.body
    body, request = caps_module.read_measured(services.settings.limits, raw, _read, raw)
    attribution_module.add_body(context, body.user, body.metadata)
    if request.requirements.stream:
        return _stream(services, context, request, unfence=bool(body.suffix))
    answer = services.engine.chat.generate(context, request)
    facts = Facts(context, answer.outcome, ID_PREFIX + context.request_id)
    headers = headers_of(facts, services.clock, streamed=False)
    unfence = bool(body.suffix) and not facts.serving.target.completes
    written = compute_if(request.large or answer.result.large, _write, answer.result, facts, unfence)
    return http_responses_module.json_reply(written, context.shown_id, headers=headers)


def _read(large: bool, raw: bytes) -> tuple[FillBody, ChatRequest]:
    body: FillBody = json_bodies_module.decode_json(DECODER, raw)
    request = completions.read_completion(body, body.prompt)
    request.large = large
    return body, request


def _stream(services: Services, context: RequestContext, request: ChatRequest, *, unfence: bool) -> Outbound:
    stream = services.engine.chat.stream(context, request)
    facts = Facts(context, stream.outcome, ID_PREFIX + context.request_id)
    headers = headers_of(facts, services.clock, streamed=True)
    batches: Iterable[Batch] = UnfencedStream(stream, facts) if unfence else stream
    return http_responses_module.stream_reply(chat_writer.frames(batches, facts), context.shown_id, headers)


def _write(result: ChatResult, facts: Facts, unfence: bool) -> bytes:
    if unfence:
        result = replace(result, choices=tuple(map(_without_fence, result.choices)))
    return chat_writer.reply(result, facts)


def _without_fence(choice: Choice) -> Choice:
    parts = [Text(without_fence(part.text)) if isinstance(part, Text) else part for part in choice.parts]
    return structs.replace(choice, parts=tuple(parts))


ABOUT = About("Fill in the middle", request=FillBody, answer=ChatCompletion, events=ChatCompletionChunk)

OPERATIONS = (Operation("POST", "/v1/fim/completions", complete, body="json", hot=True, paid=True, about=ABOUT),)
