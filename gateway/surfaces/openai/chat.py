"""POST /v1/chat/completions."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from gateway.billing.context import Adapt, RequestContext
from gateway.configuration.settings import LimitSettings
from gateway.errors import NotSupported
from gateway.neutral.chat import ChatRequest
from gateway.runtime.threads import compute, compute_if
from gateway.surfaces.openai import chat_images, chat_reader, chat_schema, chat_writer
from gateway.surfaces.openai.chat_answers import ID_PREFIX, ChatCompletion, ChatCompletionChunk
from gateway.surfaces.web import attribution as attribution_module
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import caps as caps_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.caps import LARGE
from gateway.surfaces.web.facts import Facts, headers_before_record, headers_of, overhead_header
from gateway.surfaces.web.http import About, Inbound, Operation, Outbound
from gateway.worker.services import Services

# Writes each tool call of a streamed chat completion in one piece, for clients that read no others.

Json = dict[str, Any]
DATA = b"data: "
END = b"\n\n"
FINISH = b'"finish_reason":"'
THREAD_BYTES = 1 << 17  # from which calls are joined in a thread
KINDS = {"function": "arguments", "custom": "input"}


class _Call:
    """The pieces of one call. Texts are joined once, so that many pieces take linear time."""

    def __init__(self) -> None:
        self._members: Json = {}
        self._texts: dict[str, list[str]] = {}

    def add(self, piece: Json) -> None:
        for kind, text in KINDS.items():
            if isinstance(piece.get(kind), dict):
                self._texts.setdefault(kind, []).append(piece[kind].get(text) or "")
                piece[kind] = {**self._members.get(kind, {}), **piece[kind]}
        self._members.update(piece)

    def join(self) -> Json:
        """Return the whole call."""
        joined = {kind: {**self._members[kind], KINDS[kind]: "".join(texts)} for kind, texts in self._texts.items()}
        return {**self._members, **joined}


class WholeCalls:
    """The frames of a stream, with the calls of a choice in the chunk that has its finish reason; `close` closes the
    stream."""

    def __init__(self, frames: Iterator[bytes]) -> None:
        self._frames = frames
        self._calls: dict[int, dict[int, _Call]] = {}  # by choice and index
        self._size = 0  # bytes of the frames that were read

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        sent = b""
        while not sent:  # an empty item would end the response
            sent = b"".join(map(self._frame, filter(None, next(self._frames).split(END))))
        return sent

    def close(self) -> None:
        close = getattr(self._frames, "close", None)
        if close is not None:
            close()

    def _frame(self, frame: bytes) -> bytes:
        if frame.startswith(DATA + b"{") and (self._calls or b'"tool_calls"' in frame):
            self._size += len(frame)
            return compute_if(self._size > THREAD_BYTES and FINISH in frame, self._rewrite, frame)
        return frame + END

    def _rewrite(self, frame: bytes) -> bytes:
        chunk = orjson.loads(frame[len(DATA) :])
        kept = [choice for choice in chunk["choices"] if self._keep(choice) or "usage" in chunk]
        if not kept:
            return b""
        return DATA + orjson.dumps({**chunk, "choices": kept}) + END

    def _keep(self, choice: Json) -> bool:
        """Move the calls of a choice to its last chunk; return whether the choice still has content."""
        calls = self._calls.setdefault(choice.get("index", 0), {})
        delta = choice["delta"] = choice.get("delta") or {}
        for piece in delta.pop("tool_calls", None) or ():
            calls.setdefault(piece["index"], _Call()).add(piece)
        if choice.get("finish_reason") and calls:
            delta["tool_calls"] = [call.join() for call in calls.values()]
            calls.clear()
        return bool(delta or choice.get("finish_reason"))


# Members of chat completions that differ for the clients of some vendors, which are recognized by their headers.
#
# Wire facts: the types of the packages `openai` 3.57, `groq` 1.7, `@ai-sdk/groq` 4.0 and `perplexityai` 0.46.

# "AsyncGroq/Python 1.7.0", "Perplexity/JS 0.46.1", "mistral-client-python/3.7.0", "ai-sdk/groq/3.0.71 …",
# "ai-sdk-groq/4.0.84 …". The AI SDK names the provider for streams only.
find_agent = re.compile(
    r"(?P<groq>Groq/|ai-sdk[-/]groq/)"
    r"|(?P<perplexity>Perplexity/|ai-sdk[-/]perplexity/)"
    r"|(?P<whole>mistral-client-|ai-sdk[-/]xai/)"
    r"|(?P<texts>^pydantic-ai/)"
).search
# OpenAI's SDK for Python in `parse`, and frameworks that read its raw response (LangChain, LiteLLM), serialize a
# complete answer by its types. A plain call does not, and its callers read the routing in `metadata`.
LANGUAGE_HEADER = "x-stainless-lang"
PYTHON = "python"
SERIALIZED = ("x-stainless-helper-method", "chat.completions.parse"), ("x-stainless-raw-response", "true")


def find_adapt(headers: Mapping[str, str]) -> Adapt | None:
    """Return the function that adapts an answer, or the last chunk of a stream, to the client; None for most."""
    match = find_agent(headers.get("user-agent", ""))
    if match is not None:
        return ADAPTS[match.lastgroup or ""]
    if headers.get(LANGUAGE_HEADER) == PYTHON and any(headers.get(name) == text for name, text in SERIALIZED):
        return _write_texts
    return None


def _write_texts(body: dict[str, Any]) -> None:
    """Leave only texts in `metadata`, as the type of a complete answer has it: the SDK warns of other values when it
    serializes an answer, and PydanticAI refuses them."""
    if "object" in body:
        metadata = body["llmgateway"] = body["metadata"]
        body["metadata"] = {name: text for name, text in metadata.items() if type(text) is str}


def _write_nested_usage(body: dict[str, Any]) -> None:
    """Repeat the usage in the member in which these clients read that of a stream."""
    if "object" not in body:
        body["x_groq"] = {"id": body["metadata"]["request_id"], "usage": body["usage"]}


def _write_costs(body: dict[str, Any]) -> None:
    """Write the cost as the object that these clients expect."""
    usage = body["usage"]
    details = usage["cost_details"]
    input_cost = details["upstream_inference_prompt_cost"]
    output_cost = details["output_cost"]
    usage["cost"] = {
        "input_tokens_cost": input_cost,
        "output_tokens_cost": output_cost,
        "request_cost": round(details["total_cost"] - input_cost - output_cost, 12),
        "total_cost": details["total_cost"],
    }


def join_calls(body: dict[str, Any]) -> None:
    """Leave an answer unchanged. Mistral's SDKs and the AI SDK's provider of xAI read only whole calls in a stream
    (whole_calls.py), since the APIs of both vendors send no others."""


ADAPTS: dict[str, Adapt] = {
    "groq": _write_nested_usage,
    "perplexity": _write_costs,
    "whole": join_calls,
    "texts": _write_texts,
}


# Writes chat completions in the older format: one `function_call` instead of `tool_calls`.

FUNCTION_CALL_REASON = "function_call"


def write_legacy_functions(outbound: Outbound) -> Outbound:
    """Return the response in the format of callers that sent `functions`."""
    body = outbound.body
    if outbound.status != 200:
        return outbound
    if isinstance(body, bytes):
        return Outbound(outbound.status, outbound.headers, compute_if(len(body) >= LARGE, _whole, body))
    return Outbound(outbound.status, outbound.headers, _Frames(body))


def _whole(body: bytes) -> bytes:
    answer = orjson.loads(body)
    for choice in answer["choices"]:
        _turn(choice, choice["message"])
    return orjson.dumps(answer)


class _Frames:
    """The frames of a stream; `close` closes the stream."""

    def __init__(self, frames: Iterator[bytes]) -> None:
        self._frames = frames

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return END.join(map(_frame, next(self._frames).split(END)))

    def close(self) -> None:
        close = getattr(self._frames, "close", None)
        if close is not None:
            close()


def _frame(frame: bytes) -> bytes:
    if not frame.startswith(DATA + b"{") or (b'"tool_calls"' not in frame):
        return frame
    chunk = orjson.loads(frame[len(DATA) :])
    for choice in chunk.get("choices") or ():
        _turn(choice, choice.get("delta") or {})
    return DATA + orjson.dumps(chunk)


def _turn(choice: Json, message: Json) -> None:
    """Return the first call of a message or delta as its `function_call`; the older format has room for one call
    only."""
    calls = message.pop("tool_calls", None)
    first = next((call for call in calls or () if not call.get("index")), None)
    if first is not None and isinstance(first.get("function"), dict):
        message["function_call"] = first["function"]
    if choice.get("finish_reason") == "tool_calls":
        choice["finish_reason"] = FUNCTION_CALL_REASON


def complete(services: Services, inbound: Inbound) -> Outbound:
    """Create a chat completion, complete or streamed. The answer of an image model is the images that it makes from the
    last user message; the images of that message are edited."""
    context = auth_module.admit(services, inbound, "chat")
    context.adapt = find_adapt(inbound.headers)
    limits = services.settings.limits
    raw = inbound.body
    if len(raw) < caps_module.LARGE:
        body, request = read_here(False, limits, raw)
    else:
        body, request = read_body(limits, raw)
    user = request.user
    if user or body.metadata is not None:
        attribution_module.add_body(context, user, body.metadata)
    try:
        if type(body) is chat_schema.OlderBody:
            return write_legacy_functions(_answer(services, context, request))
        return _answer(services, context, request)
    except NotSupported as refusal:
        if not chat_images.makes_images(refusal):
            raise
    return chat_images.answer(services, inbound, context, body, request)


def read_body(limits: LimitSettings, raw: bytes) -> tuple[chat_schema.ChatBody, ChatRequest]:
    """Return the validated body and the neutral request. Raises InvalidRequest."""
    return caps_module.read_structs(limits, raw, read_here, limits, raw)


def read_here(large: bool, limits: LimitSettings, raw: bytes) -> tuple[chat_schema.ChatBody, ChatRequest]:
    """Read a body as `read` does, but always in this thread, for a body of a known size."""
    body = chat_schema.decode(raw)
    caps_module.check(limits, raw, body.messages, body.tools, body.response_format)
    request = chat_reader.read_chat(body, raw)
    request.large = large and caps_module.is_long(raw, chat_reader.parts_of(body.messages))
    return body, request


def _answer(services: Services, context: RequestContext, request: ChatRequest) -> Outbound:
    if request.requirements.stream:
        return _stream(services, context, request)
    engine = services.engine.chat
    if services.settings.server.early_blank_s:
        http_responses_module.begin_early(context.shown_id)
    answer = engine.generate(context, request, early=True)
    facts = Facts(context, answer.outcome, ID_PREFIX + context.request_id)
    if answer.result.large:
        results = [answer.result]
        del answer  # so that the thread has the only reference to the result, and frees it
        written = compute(chat_writer.reply_last, results, facts)
    else:
        written = chat_writer.reply(answer.result, facts)
    headers = headers_before_record(facts, services.clock)
    reply = http_responses_module.json_reply(written, context.shown_id, headers=headers)
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
    return http_responses_module.stream_reply(frames, context.shown_id, headers)


ABOUT = About(
    "Create a chat completion", request=chat_schema.ChatBody, answer=ChatCompletion, events=ChatCompletionChunk
)

OPERATIONS = (Operation("POST", "/v1/chat/completions", complete, body="json", hot=True, paid=True, about=ABOUT),)
