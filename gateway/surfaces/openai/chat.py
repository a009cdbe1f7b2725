"""POST /v1/chat/completions."""

from gateway.billing.context import RequestContext
from gateway.configuration.settings import LimitSettings
from gateway.errors import NotSupported
from gateway.neutral.chat import ChatRequest
from gateway.runtime.threads import compute
from gateway.surfaces import attribution, auth, caps, http_responses
from gateway.surfaces.facts import Facts, headers_before_record, headers_of, overhead_header
from gateway.surfaces.http import About, Inbound, Operation, Outbound
from gateway.surfaces.openai import chat_images, chat_reader, chat_schema, chat_writer, legacy_functions
from gateway.surfaces.openai.chat_answers import ID_PREFIX, ChatCompletion, ChatCompletionChunk
from gateway.surfaces.openai.client_members import find_adapt, join_calls
from gateway.surfaces.openai.whole_calls import WholeCalls
from gateway.worker.services import Services


def complete(services: Services, inbound: Inbound) -> Outbound:
    """Create a chat completion, complete or streamed. The answer of an image model is the images that it makes from the
    last user message; the images of that message are edited."""
    context = auth.admit(services, inbound, "chat")
    context.adapt = find_adapt(inbound.headers)
    limits = services.settings.limits
    raw = inbound.body
    if len(raw) < caps.LARGE:
        body, request = read_here(False, limits, raw)
    else:
        body, request = read(limits, raw)
    if body.user is not None or body.metadata is not None:
        attribution.add_body(context, body.user, body.metadata)
    try:
        if type(body) is chat_schema.OlderBody:
            return legacy_functions.write(_answer(services, context, request))
        return _answer(services, context, request)
    except NotSupported as refusal:
        if not chat_images.makes_images(refusal):
            raise
    return chat_images.answer(services, inbound, context, body, request)


def read(limits: LimitSettings, raw: bytes) -> tuple[chat_schema.ChatBody, ChatRequest]:
    """Return the validated body and the neutral request. Raises InvalidRequest."""
    return caps.read_structs(limits, raw, read_here, limits, raw)


def read_here(large: bool, limits: LimitSettings, raw: bytes) -> tuple[chat_schema.ChatBody, ChatRequest]:
    """Read a body as `read` does, but always in this thread, for a body of a known size."""
    body = chat_schema.decode(raw)
    caps.check(limits, raw, body.messages, body.tools, body.response_format)
    request = chat_reader.read(body, raw)
    request.large = large and caps.is_long(raw, chat_reader.parts_of(body.messages))
    return body, request


def _answer(services: Services, context: RequestContext, request: ChatRequest) -> Outbound:
    if request.requirements.stream:
        return _stream(services, context, request)
    engine = services.engine.chat
    if services.settings.server.early_blank_s:
        http_responses.begin_early(context.shown_id)
    answer = engine.generate(context, request, early=True)
    facts = Facts(context, answer.outcome, ID_PREFIX + context.request_id)
    if answer.result.large:
        results = [answer.result]
        del answer  # so that the thread has the only reference to the result, and frees it
        written = compute(chat_writer.reply_last, results, facts)
    else:
        written = chat_writer.reply(answer.result, facts)
    headers = headers_before_record(facts, services.clock)
    reply = http_responses.json_reply(written, context.shown_id, headers=headers)
    engine.await_record(context)
    reply.headers.append(overhead_header(facts, services.clock))
    return reply


def _stream(services: Services, context: RequestContext, request: ChatRequest) -> Outbound:
    stream = services.engine.chat.stream(context, request)
    facts = Facts(context, stream.outcome, ID_PREFIX + context.request_id)
    headers = headers_of(facts, services.clock, streamed=True)
    frames = chat_writer.frames(stream, facts)
    if facts.adapt is join_calls:
        frames = WholeCalls(frames)
    return http_responses.stream_reply(frames, context.shown_id, headers)


ABOUT = About(
    "Create a chat completion", request=chat_schema.ChatBody, answer=ChatCompletion, events=ChatCompletionChunk
)

OPERATIONS = (Operation("POST", "/v1/chat/completions", complete, body="json", hot=True, paid=True, about=ABOUT),)
