"""POST /v1/messages and POST /v1/messages/count_tokens."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from gateway.billing.context import RequestContext
from gateway.callers.access import Predicate, predicate
from gateway.catalogue.entries import Mapping, Model
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
from gateway.surfaces.anthropic import batches, files, frames, reader, schema, usage_limits, writer
from gateway.surfaces.anthropic.reader import PromptSummary
from gateway.surfaces.anthropic.schema import Prompt
from gateway.surfaces.anthropic.writer import Message, MessageEvent
from gateway.surfaces.bodies.token_estimates import estimate_tokens
from gateway.surfaces.web import attribution as attribution_module
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import caps as caps_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.answer_structs import ModelApiAnswer, describe_answer
from gateway.surfaces.web.facts import Facts, headers_of
from gateway.surfaces.web.http import About, ErrorFormat, Inbound, Operation, Outbound, Surface
from gateway.surfaces.web.listing import reach_of
from gateway.worker.services import Services

# Models that serve in place of one of this vendor that is unknown or cannot be called: the vendor's nearest one, then
# the operator's list.

OWN_MODELS = "claude-"
WORD = re.compile(r"[a-z]{3,}")
CHAT = "chat"


def substitute(services: Services, context: RequestContext, request: ChatRequest) -> tuple[str, ...]:
    """Return the models to try after the requested one; () for a model of another vendor, and where the caller chose
    the models. Agents of this vendor request its models even if they are not configured."""
    configured = services.settings.catalogue.messages_models
    chosen = context.options.no_fallback or request.options.models or context.options.choice.get("models")
    name = request.requested_model.lower()
    if chosen or not configured or not name.startswith(OWN_MODELS):
        return ()
    return (*_nearest(services, context, name), *configured)


def _nearest(services: Services, context: RequestContext, name: str) -> tuple[str, ...]:
    """Return the newest model of the same line that the caller can call, else the cheapest line's; () if there is
    none."""
    catalogue = services.routing.catalogue.current()
    reach = reach_of(services, context.caller)
    refuse = predicate(context.caller.rules, context.at_us)
    callable_ones: list[tuple[Model, Mapping]] = []
    for model in catalogue.models.values():
        if model.id.startswith(OWN_MODELS):
            mapping = next((one for one in model.mappings if one.key in reach and _serves(one, refuse, services)), None)
            callable_ones += [(model, mapping)] if mapping is not None else []
    lines = set(WORD.findall(name.removeprefix(OWN_MODELS)))
    callable_ones.sort(key=lambda pair: pair[0].released, reverse=True)
    alike = [model.id for model, _ in callable_ones if lines.intersection(WORD.findall(model.id))]
    if alike:
        return (alike[0],)
    return tuple(model.id for model, _ in sorted(callable_ones, key=_price)[:1])


def _serves(mapping: Mapping, refuse: Predicate | None, services: Services) -> bool:
    provider = services.routing.catalogue.current().providers[mapping.provider]
    return CHAT in mapping.operations and (refuse is None or refuse(mapping, provider) is None)


def _price(pair: tuple[Model, Mapping]) -> int:
    rates = pair[1].prices[0].base
    return (rates.prompt or 0) + (rates.completion or 0)


# POST /v1/messages/count_tokens: a local estimate.


class TokenCountAnswer(ModelApiAnswer):
    input_tokens: int


def estimate(body: Prompt) -> int:
    """Return the estimated tokens of the prompt; at least 1."""
    prompt = PromptSummary()
    prompt.add_prompt(body)
    return estimate_tokens(prompt.text, len(body.messages), prompt.images, prompt.files, bool(body.tools))


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
    context = auth_module.admit(services, inbound, "chat", DIALECT)
    limits = services.settings.limits
    raw = inbound.body
    request = caps_module.read_structs(limits, raw, _read, limits, raw, inbound.header(BETA_HEADER))
    if request.user:
        attribution_module.add_user_id(context, request.user)
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
        http_responses_module.begin_early(context.shown_id)
    answer = services.engine.chat.generate(context, request)
    facts = Facts(context, answer.outcome, ID_PREFIX + context.request_id)
    headers = [
        _identity(context),
        *_standings(facts.outcome.rate_limits, services.clock),
        *usage_limits.describe_limit(services.billing.budgets, context.caller, services.clock),
        *headers_of(facts, services.clock, streamed=False),
    ]
    return http_responses_module.result_reply(
        answer.result, writer.reply, facts, request_id=context.shown_id, headers=headers
    )


def _read(large: bool, limits: LimitSettings, raw: bytes, betas: str) -> ChatRequest:
    body = _check(limits, raw, schema.decode(raw))
    request = reader.read_messages(body, betas, raw)
    request.large = large and caps_module.is_long(raw, _parts_of(body))
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
    caps_module.check(limits, raw, body.messages, body.tools, body.output_config, body.output_format)
    return body


def _count(limits: LimitSettings, raw: bytes) -> int:
    return estimate(_check(limits, raw, schema.decode_count(raw)))


def _stream(services: Services, context: RequestContext, request: ChatRequest) -> Outbound:
    stream = services.engine.chat.stream(context, request)
    facts = Facts(context, stream.outcome, ID_PREFIX + context.request_id)
    headers = [
        _identity(context),
        *_standings(facts.outcome.rate_limits, services.clock),
        *usage_limits.describe_limit(services.billing.budgets, context.caller, services.clock),
        *headers_of(facts, services.clock, streamed=True),
    ]
    return http_responses_module.stream_reply(frames.frames(stream, facts), context.shown_id, headers)


def count(services: Services, inbound: Inbound) -> Outbound:
    """Estimate the input tokens: `{"input_tokens": n}`. Nothing is sent upstream and nothing is charged."""
    context = auth_module.admit(services, inbound, "count_tokens", DIALECT)
    limits = services.settings.limits
    raw = inbound.body
    answer = TokenCountAnswer(caps_module.read(limits, raw, _count, limits, raw))
    return http_responses_module.json_reply(answer.encode(), context.shown_id, headers=[_identity(context)])


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
ABOUT_COUNT = About("Estimate the input tokens of a message", request=schema.Prompt, answer=TokenCountAnswer)

OPERATIONS = (
    Operation("POST", "/v1/messages", create, body="json", hot=True, paid=True, about=ABOUT),
    Operation("POST", "/v1/messages/count_tokens", count, body="json", about=ABOUT_COUNT),
    *files.OPERATIONS,
    *batches.OPERATIONS,
)

SURFACE = Surface("messages", ERRORS, OPERATIONS, prefixes=("/v1/messages",))
