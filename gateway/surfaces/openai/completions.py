"""POST /v1/completions: continues a text, or (with `suffix`) fills a gap in it, as code editors request it.

Works with every chat model. Where the provider completes text natively (fill in the middle), that is used; other models
get the same task as a chat.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, Literal

import orjson
from msgspec import Meta, Struct, structs
from msgspec.json import Decoder

from gateway import ids
from gateway.billing.batch_reservation import LineMeasured, MeasuredLine
from gateway.billing.context import RequestContext
from gateway.dialects.field_names import restate
from gateway.engine.executor import Answer, StreamedAnswer
from gateway.errors import ATTEMPTS, GatewayError, NotSupported
from gateway.money import NANO, format_usd
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
from gateway.runtime.threads import Job, compute_if
from gateway.surfaces.bodies import validation_errors as json_bodies_module
from gateway.surfaces.bodies.preference_checks import Routing, read_preferences
from gateway.surfaces.bodies.request_parameters import ParameterReader, with_parameters
from gateway.surfaces.bodies.validation_errors import invalid
from gateway.surfaces.openai import completions_writer
from gateway.surfaces.openai.chat_writer import error_frame
from gateway.surfaces.openai.completions_writer import (
    CompletionChoice,
    CompletionMetadata,
    CompletionTail,
    TextCompletion,
)
from gateway.surfaces.web import attribution as attribution_module
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import caps as caps_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.facts import Facts, Header, headers_of
from gateway.surfaces.web.http import About, Inbound, Operation, Outbound
from gateway.surfaces.web.model_options import Models, ProviderOptions, read_choice
from gateway.worker.services import Services

# Several prompts in one text completion: each is a separate request, and their answers are the choices of one
# response.

CONCURRENT_PROMPTS = 4  # prompts that run at the same time
COST = "x-llmgateway-cost"


class PromptBatch:
    """The requests of one call, in the order of its prompts; `echoed` and `unfence` as for the writer. The first runs
    as the call itself; each of the others has its own context, reservation and usage row."""

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        requests: list[ChatRequest],
        echoed: list[str],
        unfence: bool,
        prefix: str,
    ) -> None:
        others = [_new_context(context) for _ in requests[1:]]
        self._services = services
        self._requests = requests
        self._unfence = unfence
        self._contexts = [context, *others]
        self._id = prefix + context.request_id
        self.shown_id = context.shown_id
        needs = requests[0].requirements
        self._choices = needs.n
        self.streamed = needs.stream
        self._large = requests[0].large
        self._echoes = [completions_writer.Echo(text, needs.n) for text in echoed]

    def generate(self) -> tuple[bytes, list[Header]]:
        """Return the body of the complete response, and its headers. An error of one prompt fails the call; completed
        prompts are billed."""
        if isinstance(self._contexts[0].job, MeasuredLine):
            self._measure()
        answers = [self._generate(0)]
        # This prompt is paid whatever happens to the others, so a retry with the same Idempotency-Key does not repeat
        # the call.
        self._services.billing.settlements.call_counts.mark_billed(bytes.fromhex(self._contexts[0].request_id))
        headers = dict(headers_of(self._facts(0, answers[0]), self._services.clock, streamed=False))
        for start in range(1, len(self._requests), CONCURRENT_PROMPTS):
            answers += self._generate_together(range(start, min(start + CONCURRENT_PROMPTS, len(self._requests))))
        facts = [self._facts(number, answer) for number, answer in enumerate(answers)]
        headers[COST] = format_usd(sum(fact.charge.total for fact in facts))
        headers[ATTEMPTS] = str(sum(len(fact.outcome.attempts) for fact in facts))
        return compute_if(self._large, self._write, answers, facts), list(headers.items())

    def stream(self) -> tuple[Iterator[bytes], list[Header]]:
        """Return server-sent events, one prompt after the other, then the usage of all; and the headers. Errors of the
        first prompt before any content are raised, later ones end the stream."""
        first = self._services.engine.chat.stream(self._contexts[0], self._requests[0])
        frames = self._frames(first)
        next(frames)  # taken now: from here on, closing this generator also closes the stream
        return frames, headers_of(self._facts(0, first), self._services.clock, streamed=True)

    def _frames(self, first: StreamedAnswer) -> Iterator[bytes]:
        tails: list[CompletionTail] = []
        stream = first
        try:
            yield b""
            for number, context in enumerate(self._contexts):
                if number:
                    stream = self._services.engine.chat.stream(context, self._requests[number])
                facts = self._facts(number, stream)
                part = completions_writer.PromptStream(
                    facts, self._echoes[number], self._unfence, number * self._choices
                )
                yield from part.frames(stream)
                if part.tail is None:
                    return
                tails.append(part.tail)
            yield completions_writer.last_frame(facts, self._merge_tails(tails))
        except GatewayError as error:
            yield error_frame(error)
        finally:
            stream.close()

    def _write(self, answers: list[Answer], facts: list[Facts]) -> bytes:
        bodies = [
            completions_writer.body_of(answer.result, fact, echo, unfence=self._unfence)
            for answer, fact, echo in zip(answers, facts, self._echoes, strict=True)
        ]
        return orjson.dumps(self._merge(bodies))

    def _measure(self) -> None:
        """Raise LineMeasured for all prompts together."""
        bounds = []
        for number in range(len(self._requests)):
            try:
                self._generate(number)
            except LineMeasured as measured:
                bounds.append(measured)
        raise LineMeasured(bounds[0].payer, sum(one.bound_nusd for one in bounds))

    def _generate(self, number: int) -> Answer:
        return self._services.engine.chat.generate(self._contexts[number], self._requests[number])

    def _generate_together(self, numbers: range) -> list[Answer]:
        jobs = [Job(self._generate, number) for number in numbers]
        try:
            return [job.result() for job in jobs]
        except BaseException:
            # A prompt failed or the caller disconnected: the other results are not needed.
            for job in jobs:
                job.stop()
            raise

    def _facts(self, number: int, answer: Answer | StreamedAnswer) -> Facts:
        return Facts(self._contexts[number], answer.outcome, self._id)

    def _merge(self, bodies: list[TextCompletion]) -> TextCompletion:
        choices: list[CompletionChoice] = []
        for number, body in enumerate(bodies):
            first = number * self._choices
            choices.extend({**choice, "index": first + choice["index"]} for choice in body["choices"])
        return {**bodies[0], "choices": choices, **self._merge_tails(bodies)}

    def _merge_tails(self, tails: Sequence[CompletionTail]) -> CompletionTail:
        """Return usage and cost of all prompts, the routing of the first, and the log id of each."""
        warnings = dict.fromkeys(text for tail in tails for text in tail["metadata"].get("warnings", ()))
        log_ids = [context.request_id for context in self._contexts]
        metadata: CompletionMetadata = {**tails[0]["metadata"], "log_ids": log_ids}
        if warnings:
            metadata["warnings"] = list(warnings)
        return {"usage": _sum([tail["usage"] for tail in tails]), "metadata": metadata}


def _new_context(context: RequestContext) -> RequestContext:
    """Return the context of another prompt: its payload is retained with that of the first, which holds the whole
    call."""
    return structs.replace(context, request_id=ids.new_hex(), payload=None, request=None, outcome=None)


def _sum(usages: Sequence[Mapping[str, Any]]) -> Any:
    """Add usage objects member by member; costs are added as whole nano-dollars."""
    total: dict[str, Any] = {}
    for name in dict.fromkeys(name for usage in usages for name in usage):
        values = [usage[name] for usage in usages if usage.get(name) is not None]
        if values and isinstance(values[0], dict):
            total[name] = _sum(values)
        elif values and isinstance(values[0], float):
            total[name] = sum(round(value * NANO) for value in values) / NANO
        else:
            total[name] = sum(values) if values else None
    return total


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
    context = auth_module.admit(services, inbound, "chat", "completions")
    raw = inbound.body
    requests, echoed, unfence = caps_module.read_measured(services.settings.limits, raw, _read, raw)
    attribution_module.add_body(context, requests[0].user)
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
    return http_responses_module.json_reply(written, context.shown_id, headers=headers)


def _complete_batch(services: Services, batch: PromptBatch) -> Outbound:
    if batch.streamed:
        frames, headers = batch.stream()
        return http_responses_module.stream_reply(frames, batch.shown_id, headers)
    written, headers = batch.generate()
    return http_responses_module.json_reply(written, batch.shown_id, headers=headers)


def _read(large: bool, raw: bytes) -> tuple[list[ChatRequest], list[str], bool]:
    """Return a request for each prompt, the echoed text, and whether a code fence around a completion is removed."""
    body = decode(raw)
    prompts = prompts_of(body)
    requests = [read_completion(body, prompt) for prompt in prompts]
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
    return http_responses_module.stream_reply(
        frames, context.shown_id, headers_of(facts, services.clock, streamed=True)
    )


def decode(body: bytes) -> CompletionBody:
    """Return the validated body of a request. Raises InvalidRequest `invalid_json` or `invalid_parameters` with `param`
    set."""
    return json_bodies_module.decode_json(DECODER, body)


def prompts_of(body: CompletionBody) -> tuple[str, ...]:
    """Return the prompts, at least one. Raises InvalidRequest for token numbers: they depend on the tokenizer, so a
    different model would continue nonsense."""
    prompt = body.prompt
    prompts = (prompt,) if isinstance(prompt, str) else tuple(prompt)
    if not prompts or len(prompts) > MAX_PROMPTS or not all(isinstance(text, str) for text in prompts):
        raise invalid("prompt", f"expected a string or up to {MAX_PROMPTS} strings; token numbers are not supported")
    return prompts


def read_completion(body: CompletionFields, prompt: str) -> ChatRequest:
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
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    stops = tuple(islice((text for text in stop if text), MAX_STOPS))
    return PARAMETER_READER.read(body, max_tokens=body.max_tokens or None, stop=stops)


ABOUT = About(
    "Create a text completion, with or without a suffix",
    request=CompletionBody,
    answer=completions_writer.TextCompletion,
    events=completions_writer.CompletionChunk,
)

OPERATIONS = (Operation("POST", "/v1/completions", complete, body="json", hot=True, paid=True, about=ABOUT),)
