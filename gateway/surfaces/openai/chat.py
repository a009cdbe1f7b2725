"""POST /v1/chat/completions."""

from gateway.engine.chat import Stream
from gateway.engine.context import RequestContext
from gateway.engine.outcome import Outcome
from gateway.neutral.chat import ChatRequest
from gateway.services import Services
from gateway.surfaces import auth, replies
from gateway.surfaces.exchange import Inbound, Operation, Outbound
from gateway.surfaces.facts import OutcomeFacts, headers_of
from gateway.surfaces.openai import chat_reader, chat_schema, chat_writer

ID_PREFIX = "chatcmpl-"


def complete(services: Services, inbound: Inbound) -> Outbound:
    """A chat completion, whole or streamed (HTTP reference, section 2)."""
    context = auth.admit(services, inbound, "chat")
    request = chat_reader.read(chat_schema.decode(inbound.body), inbound.body)
    if request.needs.stream:
        return _stream(services, context, request)
    answer = services.chat.generate(context, request)
    facts = facts_of(context, answer.outcome)
    body = chat_writer.reply(answer.result, facts.final())
    return replies.json_reply(body, context.shown_id, headers=headers_of(services.clock, context, answer.outcome))


def _stream(services: Services, context: RequestContext, request: ChatRequest) -> Outbound:
    stream: Stream = services.chat.stream(context, request)
    frames = chat_writer.frames(stream, facts_of(context, stream.outcome))
    return replies.stream_reply(frames, context.shown_id, headers_of(services.clock, context, stream.outcome))


def facts_of(context: RequestContext, outcome: Outcome) -> OutcomeFacts:
    return OutcomeFacts(context, outcome, ID_PREFIX + context.request_id)


OPERATIONS = (Operation("POST", "/v1/chat/completions", complete, body="json", hot=True, paid=True),)
