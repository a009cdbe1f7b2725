"""POST /v1/messages and POST /v1/messages/count_tokens."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from gateway.billing.context import RequestContext
from gateway.clock import SECOND_US, Clock, to_iso
from gateway.configuration.settings import LimitSettings
from gateway.dialects import anthropic as dialect
from gateway.dialects.field_names import restate
from gateway.errors import NotSupported, RateLimited, SpendingLimitReached, UnknownModel
from gateway.limits import rate_limits as rates
from gateway.limits.rate_limits import RateLimitStatus
from gateway.limits.rate_rules import REQUESTS, TOKENS
from gateway.neutral.chat import ChatRequest
from gateway.routing.candidate_filter import NoCredential
from gateway.surfaces import attribution, auth, caps, http_responses
from gateway.surfaces.answer_structs import describe_answer
from gateway.surfaces.anthropic import count_tokens, frames, reader, schema, usage_limits, writer
from gateway.surfaces.anthropic.message_answers import Message, MessageEvent
from gateway.surfaces.anthropic.substitutes import substitute
from gateway.surfaces.facts import Facts, headers_of
from gateway.surfaces.http import About, ErrorFormat, Inbound, Operation, Outbound, Surface
from gateway.worker.services import Services

DIALECT = "anthropic"
ID_PREFIX = "msg_"
BETA_HEADER = "anthropic-beta"
P = TypeVar("P", bound=schema.Prompt)


def create(services: Services, inbound: Inbound) -> Outbound:
    """Create a message, complete or streamed."""
    try:
        return _create(services, inbound)
    except NotSupported as error:
        raise restate(error, DIALECT) from error
    except SpendingLimitReached as error:
        if inbound.caller is None:
            raise
        raise usage_limits.refuse(error, inbound.caller, services.clock) from None
    except RateLimited as error:
        error.headers = (*error.headers, *_standings(error.standings, services.clock))
        raise


def _create(services: Services, inbound: Inbound) -> Outbound:
    context = auth.admit(services, inbound, "chat", DIALECT)
    limits = services.settings.limits
    raw = inbound.body
    request = caps.read_structs(limits, raw, _read, limits, raw, inbound.header(BETA_HEADER))
    if request.user:
        attribution.add_user_id(context, request.user)
    try:
        return _answer(services, context, request)
    except (UnknownModel, NoCredential):
        models = substitute(services, context, request)
        if not models:
            raise
    return _answer(services, context, replace(request, options=request.options.with_changes(models=models)))


def _answer(services: Services, context: RequestContext, request: ChatRequest) -> Outbound:
    if request.requirements.stream:
        return _stream(services, context, request)
    if services.settings.server.early_blank_s:
        http_responses.begin_early(context.shown_id)
    answer = services.engine.chat.generate(context, request)
    facts = Facts(context, answer.outcome, ID_PREFIX + context.request_id)
    headers = [
        _identity(context),
        *_standings(facts.outcome.rate_limits, services.clock),
        *usage_limits.describe_limit(services.billing.budgets, context.caller, services.clock),
        *headers_of(facts, services.clock, streamed=False),
    ]
    return http_responses.result_reply(answer.result, writer.reply, facts, request_id=context.shown_id, headers=headers)


def _read(large: bool, limits: LimitSettings, raw: bytes, betas: str) -> ChatRequest:
    body = _check(limits, raw, schema.decode(raw))
    request = reader.read(body, betas, raw)
    request.large = large and caps.is_long(raw, _parts_of(body))
    return request


def _parts_of(body: schema.MessagesBody) -> Iterator[Any]:
    """Yield the content of each message, and of each block that has content of its kind."""
    for message in body.messages:
        content = message.content
        yield content
        if isinstance(content, list):
            for block in content:
                yield getattr(block, "content", None)


def _check(limits: LimitSettings, raw: bytes, body: P) -> P:
    caps.check(limits, raw, body.messages, body.tools, body.output_config, body.output_format)
    return body


def _count(limits: LimitSettings, raw: bytes) -> int:
    return count_tokens.estimate(_check(limits, raw, schema.decode_count(raw)))


def _stream(services: Services, context: RequestContext, request: ChatRequest) -> Outbound:
    stream = services.engine.chat.stream(context, request)
    facts = Facts(context, stream.outcome, ID_PREFIX + context.request_id)
    headers = [
        _identity(context),
        *_standings(facts.outcome.rate_limits, services.clock),
        *usage_limits.describe_limit(services.billing.budgets, context.caller, services.clock),
        *headers_of(facts, services.clock, streamed=True),
    ]
    return http_responses.stream_reply(frames.frames(stream, facts), context.shown_id, headers)


def count(services: Services, inbound: Inbound) -> Outbound:
    """Estimate the input tokens: `{"input_tokens": n}`. Nothing is sent upstream and nothing is charged."""
    context = auth.admit(services, inbound, "count_tokens", DIALECT)
    limits = services.settings.limits
    raw = inbound.body
    answer = count_tokens.TokenCountAnswer(caps.read(limits, raw, _count, limits, raw))
    return http_responses.json_reply(answer.encode(), context.shown_id, headers=[_identity(context)])


def _identity(context: RequestContext) -> tuple[str, str]:
    """Return the header in which this format's SDKs read the request id."""
    return ERRORS.id_header, context.shown_id


def _standings(rate_limits: Sequence[RateLimitStatus], clock: Clock) -> list[tuple[str, str]]:
    """Return the state of the caller's rate limits in this format's headers (Anthropic API reference, "Rate
    limits")."""
    pairs = []
    tightest = rates.tightest_of(rate_limits)
    for kind in (REQUESTS, TOKENS):
        if standing := tightest.get(kind):
            prefix = f"anthropic-ratelimit-{kind}"
            resets = to_iso(clock.now_us() + standing.reset_s * SECOND_US)
            values = (("limit", standing.amount), ("remaining", standing.remaining), ("reset", resets))
            pairs += [(f"{prefix}-{name}", str(value)) for name, value in values]
    return pairs


ERRORS = ErrorFormat(
    DIALECT,
    dialect.error_body,
    describe_answer(dialect.MessageError),
    id_header="request-id",
)
ABOUT = About("Create a message (Anthropic dialect)", request=schema.MessagesBody, answer=Message, events=MessageEvent)
ABOUT_COUNT = About(
    "Estimate the input tokens of a message", request=schema.Prompt, answer=count_tokens.TokenCountAnswer
)

OPERATIONS = (
    Operation("POST", "/v1/messages", create, body="json", hot=True, paid=True, about=ABOUT),
    Operation("POST", "/v1/messages/count_tokens", count, body="json", about=ABOUT_COUNT),
)

UNSUPPORTED_PATHS = {"/v1/messages/batches": "batches are not supported: send each request separately."}
SURFACE = Surface("messages", ERRORS, OPERATIONS, prefixes=("/v1/messages",), instead=UNSUPPORTED_PATHS)
