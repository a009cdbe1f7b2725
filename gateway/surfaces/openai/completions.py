"""POST /v1/completions: continues a text, or (with `suffix`) fills a gap in it, as code editors request it.

Works with every chat model. Where the provider completes text natively (fill in the middle), that is used; other models
get the same task as a chat.
"""

from itertools import islice
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.json import Decoder

from gateway.billing.context import RequestContext
from gateway.dialects.field_names import restate
from gateway.errors import NotSupported
from gateway.neutral.chat import (
    ChatRequest,
    Completion,
    Conversation,
    Options,
    ReasoningOptions,
    Requirements,
    Sampling,
)
from gateway.neutral.parameters import ChoiceCount
from gateway.neutral.parts import Message, Text
from gateway.runtime.threads import compute_if
from gateway.surfaces import attribution, auth, caps, http_responses, json_bodies
from gateway.surfaces.facts import Facts, headers_of
from gateway.surfaces.http import About, Inbound, Operation, Outbound
from gateway.surfaces.model_options import Models, ProviderOptions, read_choice
from gateway.surfaces.openai import completions_writer
from gateway.surfaces.openai.completions_batch import PromptBatch
from gateway.surfaces.preference_checks import Routing, read_preferences
from gateway.surfaces.request_parameters import ParameterReader, with_parameters
from gateway.surfaces.validation_errors import invalid
from gateway.worker.services import Services

ID_PREFIX = "cmpl-"
MAX_ECHOED = 32 << 20  # characters of all prompts in one response
MAX_PROMPTS = 128  # prompts in one call; each is a separate request
MAX_STOPS = 4  # OpenAI API reference, completions: up to four sequences
FILL = (
    "You complete text at the cursor of an editor. The user gives what stands before the cursor between <before> and "
    "</before> and what stands after it between <after> and </after>. Answer with the text to insert at the cursor and "
    "nothing else: no explanation, no Markdown fence, nothing that already stands before or after it. Keep to the "
    "indentation and the language of the text. If nothing is missing, answer with an empty text."
)
Name = Annotated[str, Meta(min_length=1)]
# The length may be 0, and a stop sequence may be a text.
PARAMETER_READER = ParameterReader("completions", apart=("max_tokens", "stop"))


@with_parameters("completions")
class CompletionFields(Struct, kw_only=True, gc=False):
    """The fields that text completions and fill-in-the-middle share."""

    model: Name
    suffix: str | None = None
    stream: bool | None = None
    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    n: ChoiceCount | None = None
    stop: str | list[str] | None = None
    user: str | None = None
    service_tier: Literal["auto", "default", "flex", "priority"] | None = None
    routing: Routing = None
    models: Models | None = None
    provider: ProviderOptions | None = None
    prompt_cache_key: str | None = None


class CompletionBody(CompletionFields, kw_only=True, gc=False):
    """Every field that has an effect; all others of the wire format (seed, logprobs, best_of …) are accepted and
    dropped."""

    prompt: str | list[Any]
    echo: bool | None = None


DECODER = Decoder(CompletionBody)


def complete(services: Services, inbound: Inbound) -> Outbound:
    """Create a text completion, complete or streamed."""
    try:
        return _complete(services, inbound)
    except NotSupported as error:
        raise restate(error, "completions") from error


def _complete(services: Services, inbound: Inbound) -> Outbound:
    context = auth.admit(services, inbound, "chat", "completions")
    raw = inbound.body
    requests, echoed, unfence = caps.read_measured(services.settings.limits, raw, _read, raw)
    attribution.add_body(context, requests[0].user)
    if len(requests) > 1:
        return _complete_batch(services, PromptBatch(services, context, requests, echoed, unfence, ID_PREFIX))
    return _complete_one(services, context, requests[0], echoed[0], unfence)


def _complete_one(
    services: Services, context: RequestContext, request: ChatRequest, echoed: str, unfence: bool
) -> Outbound:
    if request.requirements.stream:
        return _stream(services, context, request, echoed, unfence)
    answer = services.engine.chat.generate(context, request)
    facts = Facts(context, answer.outcome, ID_PREFIX + context.request_id)
    headers = headers_of(facts, services.clock, streamed=False)
    echo = completions_writer.Echo(echoed, request.requirements.n)
    large = request.large or answer.result.large
    written = compute_if(large, completions_writer.reply, answer.result, facts, echo, unfence=unfence)
    return http_responses.json_reply(written, context.shown_id, headers=headers)


def _complete_batch(services: Services, batch: PromptBatch) -> Outbound:
    if batch.streamed:
        frames, headers = batch.stream()
        return http_responses.stream_reply(frames, batch.shown_id, headers)
    written, headers = batch.generate()
    return http_responses.json_reply(written, batch.shown_id, headers=headers)


def _read(large: bool, raw: bytes) -> tuple[list[ChatRequest], list[str], bool]:
    """Return a request for each prompt, the echoed text, and whether a code fence around a completion is removed."""
    body = decode(raw)
    prompts = prompts_of(body)
    requests = [read(body, prompt) for prompt in prompts]
    for request in requests:
        request.large = large
    echoed = [prompt if body.echo else "" for prompt in prompts]
    if sum(map(len, echoed)) * requests[0].requirements.n > MAX_ECHOED:
        raise invalid("echo", f"the prompt repeated {requests[0].requirements.n} times exceeds {MAX_ECHOED >> 20} MB")
    return requests, echoed, bool(body.suffix)


def _stream(services: Services, context: RequestContext, request: ChatRequest, echoed: str, unfence: bool) -> Outbound:
    stream = services.engine.chat.stream(context, request)
    facts = Facts(context, stream.outcome, ID_PREFIX + context.request_id)
    echo = completions_writer.Echo(echoed, request.requirements.n)
    frames = completions_writer.frames(stream, facts, echo, unfence=unfence)
    return http_responses.stream_reply(frames, context.shown_id, headers_of(facts, services.clock, streamed=True))


def decode(body: bytes) -> CompletionBody:
    """Return the validated body of a request. Raises InvalidRequest `invalid_json` or `invalid_parameters` with `param`
    set."""
    return json_bodies.decode_json(DECODER, body)


def prompts_of(body: CompletionBody) -> tuple[str, ...]:
    """Return the prompts, at least one. Raises InvalidRequest for token numbers: they depend on the tokenizer, so a
    different model would continue nonsense."""
    prompt = body.prompt
    if isinstance(prompt, str):
        prompts = (prompt,)
    else:
        prompts = tuple(prompt)
    if not prompts or len(prompts) > MAX_PROMPTS or not all(isinstance(text, str) for text in prompts):
        raise invalid("prompt", f"expected a string or up to {MAX_PROMPTS} strings; token numbers are not supported")
    return prompts


def read(body: CompletionFields, prompt: str) -> ChatRequest:
    """Return the neutral request for one prompt of a validated body. Raises InvalidRequest."""
    completion = Completion(prompt, body.suffix or "")
    size = len(completion.prompt.encode("utf-8", "replace")) + len(completion.suffix.encode("utf-8", "replace"))
    messages = _task(completion)
    return ChatRequest(
        requested_model=body.model,
        requirements=Requirements(
            stream=bool(body.stream),
            n=body.n or 1,
            max_tokens=body.max_tokens or None,
            prompt_bytes=size + (len(FILL) if completion.suffix else 0),
            messages=len(messages),
        ),
        decode=lambda: Conversation(messages, reasoning=_no_thinking(completion), sampling=_sampling(body)),
        options=Options(
            **read_choice(body, read_preferences(routing=body.routing)),
            service_tier=body.service_tier or "",
            session=body.prompt_cache_key or body.user or "",
            prompt_cache_key=body.prompt_cache_key or "",
        ),
        user=body.user or "",
        completion=completion,
    )


def _task(completion: Completion) -> tuple[Message, ...]:
    """Return the prompt for a chat model: a gap is explained, a text without one needs no explanation."""
    if not completion.suffix:
        return (Message("user", (Text(completion.prompt),)),)
    gap = f"<before>{completion.prompt}</before>\n<after>{completion.suffix}</after>"
    return Message("system", (Text(FILL),)), Message("user", (Text(gap),))


def _no_thinking(completion: Completion) -> ReasoningOptions:
    """Disable reasoning, since an editor waits for the completion."""
    if completion.suffix:
        return ReasoningOptions(effort="none", enabled=False)
    return ReasoningOptions()


def _sampling(body: CompletionFields) -> Sampling:
    if isinstance(body.stop, str):
        stop = [body.stop]
    else:
        stop = body.stop or []
    stops = tuple(islice((text for text in stop if text), MAX_STOPS))
    return PARAMETER_READER.read(body, max_tokens=body.max_tokens or None, stop=stops)


ABOUT = About(
    "Create a text completion, with or without a suffix",
    request=CompletionBody,
    answer=completions_writer.TextCompletion,
    events=completions_writer.CompletionChunk,
)

OPERATIONS = (Operation("POST", "/v1/completions", complete, body="json", hot=True, paid=True, about=ABOUT),)
