"""Writes a neutral answer as a chat completion: one body, or the frames of a stream."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any
from typing import Protocol as Interface

import orjson

from gateway.dialects import google
from gateway.dialects import openai as dialect
from gateway.dialects.openai import LISTED_SOURCES, read_sources
from gateway.errors import GatewayError
from gateway.neutral.chat import ChatResult, Choice, images_of, sources_of
from gateway.neutral.events import (
    Batch,
    Event,
    Failed,
    Finished,
    Heartbeat,
    NativeChunk,
    Notice,
    PartFound,
    ReasoningDelta,
    RefusalDelta,
    SourceFound,
    TextDelta,
    ToolCallDelta,
)
from gateway.neutral.long_json import dumps
from gateway.neutral.parts import Image, Part, Reasoning, Refusal, Source, Text, ToolCall, VendorPart
from gateway.surfaces.openai.chat_answers import (
    FINGERPRINT,
    CalledFunction,
    ChatAnnotation,
    ChatChoice,
    ChatChunkChoice,
    ChatChunkContent,
    ChatCompletion,
    ChatDelta,
    ChatImage,
    ChatToolCall,
    CompletionMessage,
    UrlCitation,
)
from gateway.surfaces.openai.reasoning_details import CONTENT_ID, write_block, write_details, write_token
from gateway.surfaces.web.facts import AnswerFacts
from gateway.surfaces.web.http_responses import write_frames

# Writes tool calls, images and citations as members of a chat completion's message.


def write_call(call: ToolCall) -> ChatToolCall:
    if call.custom:
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    function: CalledFunction = {"name": call.name, "arguments": call.arguments or "{}"}
    written: ChatToolCall = {"id": call.id, "type": "function", "function": function}
    if call.signature and call.vendor == google.NAME:
        written["extra_content"] = google.write_extra(call.signature)
    return written


def add_piece(call: ChatToolCall, event: ToolCallDelta) -> None:
    """Add a piece of a tool call's arguments; the first one, which has the type, also names the tool."""
    named = event.name or "type" in call
    if event.signature and event.vendor == google.NAME:
        call["extra_content"] = google.write_extra(event.signature)
    if event.custom:
        call["custom"] = {"input": event.arguments}
        if named:
            call["custom"]["name"] = event.name
    else:
        call["function"] = {"arguments": event.arguments}
        if named:
            call["function"]["name"] = event.name


def write_image(image: Image) -> ChatImage:
    media = image.media
    url = media.url or f"data:{media.media_type or 'image/png'};base64,{media.data}"
    return {"type": "image_url", "image_url": {"url": url}}


def write_annotation(source: Source, begin: int = 0, end: int = 0) -> ChatAnnotation:
    """Return a url_citation, with the positions that OpenAI's type requires: those of the source, which count from
    `begin`, or `begin` and `end` if it has none."""
    if source.start >= 0 and source.end >= 0:
        begin, end = begin + source.start, begin + source.end
    citation: UrlCitation = {"url": source.url, "title": source.title, "start_index": begin, "end_index": end}
    return {"type": "url_citation", "url_citation": citation}


def write_annotations(parts: Iterable[Part]) -> list[ChatAnnotation]:
    """Return the citations of an answer's texts. Positions count in the joined text, and a citation without one covers
    the text that it belongs to."""
    written: list[ChatAnnotation] = []
    begin = 0
    for part in parts:
        if isinstance(part, Text):
            end = begin + len(part.text)
            written += [write_annotation(source, begin, end) for source in part.sources if source.url]
            begin = end
    return written


# Writes the choices of a whole chat completion: of a neutral result, or relayed with the gateway's names.


def native_choices(native: dict[str, Any]) -> list[ChatChoice]:
    """Return the upstream's choices with the gateway's names for reasoning and finish reasons (copies where they
    differ)."""
    choices: list[ChatChoice] = []
    for place, choice in enumerate(native["choices"]):
        message = choice["message"]
        thoughts = message.get("reasoning") or message.get("reasoning_content")
        if thoughts:
            details = message.get("reasoning_details") or write_details([Reasoning(str(thoughts))])
            both = {"reasoning": thoughts, "reasoning_content": message.get("reasoning_content") or thoughts}
            message = {**message, **both, "reasoning_details": details}
        if "tool_calls" in message:
            message = _with_types(message)
        reason = write_finish(choice.get("finish_reason")) or "stop"
        choices.append({"index": choice.get("index", place), "message": message, "finish_reason": reason})
    return choices


def _with_types(message: dict[str, Any]) -> dict[str, Any]:
    """Return the message with complete tool calls: some servers omit the type and number the calls as in a stream."""
    calls = message["tool_calls"] or ()
    if all(call.get("type") for call in calls):
        return message
    kept = [{name: value for name, value in call.items() if name != "index"} for call in calls]
    typed = [call | {"type": "custom" if "custom" in call else "function"} for call in kept]
    return {**message, "tool_calls": typed}


def write_finish(reason: Any) -> dialect.ChatFinish | None:
    """Map an upstream's finish reason to one of the four that callers know; None for none."""
    if not reason:
        return None
    return dialect.FINISH_WRITE[dialect.FINISH_READ.get(reason) or dialect.read_finish(reason)]


def write_choice(choice: Choice, index: int) -> ChatChoice:
    message: CompletionMessage
    text = _only_text(choice)
    message = _message(choice) if text is None else {"role": "assistant", "content": text}
    return {"index": index, "message": message, "finish_reason": dialect.FINISH_WRITE[choice.finish]}


def _only_text(choice: Choice) -> str | None:
    """Return the text of a choice that consists of nothing else, as most do."""
    if len(choice.parts) != 1:
        return None
    part = choice.parts[0]
    if isinstance(part, Text) and not part.sources and not part.signature:
        return part.text
    return None


def _message(choice: Choice) -> CompletionMessage:
    texts = [part.text for part in choice.parts if isinstance(part, Text)]
    message: CompletionMessage = {"role": "assistant", "content": "".join(texts) if texts else None}
    refusals = [part.text for part in choice.parts if isinstance(part, Refusal)]
    if refusals:
        message["refusal"] = "".join(refusals)
    thoughts = [part.text for part in choice.parts if isinstance(part, Reasoning) and part.text]
    if thoughts:
        message["reasoning"] = message["reasoning_content"] = "\n\n".join(thoughts)
    details = write_details(choice.parts)
    if details:
        message["reasoning_details"] = details
    calls = [write_call(part) for part in choice.parts if isinstance(part, ToolCall) and not part.executed]
    if calls:
        message["tool_calls"] = calls
    images = [write_image(image) for image in images_of(choice)]
    if images:
        message["images"] = images
    sources = write_annotations(choice.parts)
    if sources:
        message["annotations"] = sources
    return message


def list_sources(body: ChatCompletion, native: dict[str, Any]) -> None:
    """Add the sources that the upstream lists beside its choices: as they came, and as citations of the first choice
    where that has none."""
    for name in LISTED_SOURCES:
        if native.get(name):
            body[name] = native[name]  # type: ignore[literal-required]
    sources = read_sources(native)
    choices = body["choices"]
    if sources and choices and not choices[0]["message"].get("annotations"):
        length = len(choices[0]["message"].get("content") or "")
        annotations = [write_annotation(source, 0, length) for source in sources]
        choices[0] = {**choices[0], "message": {**choices[0]["message"], "annotations": annotations}}


KEEP_ALIVE = b": keep-alive\n\n"
UNCITED = "Document citations were left out: chat completions have no field for them."
DONE = b"data: [DONE]\n\n"
NUMBERED = ("annotations", "images")  # lists of items without an index of their own
LAST_CHOICE: list[ChatChunkChoice] = [{"index": 0, "delta": {}, "finish_reason": None}]
CHUNK_HEAD = b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,"system_fingerprint":"'
CHUNK_HEAD += FINGERPRINT.encode() + b'","choices":'
TEXT_HEAD = b'[{"index":0,"delta":{"content":'
TEXT_TAIL = b'},"finish_reason":null}]}\n\n'
END = b"}\n\n"
CHOICES_AT = -len(b'"choices":')  # where the head of a chunk ends without its last name


class ChatFacts(AnswerFacts, Interface):
    """The facts in a response besides its content. `answer_id` is "chatcmpl-…". `served` (provider/model, with :region
    when one was chosen) is read when the first piece of the content has arrived."""

    @property
    def served(self) -> str: ...


def reply(result: ChatResult, facts: ChatFacts) -> bytes:
    """Return the body of a chat completion. A relayed response keeps only the choices of the upstream."""
    native = result.native and result.native.body
    metadata = facts.metadata()
    if native is None and _cites_documents(result):
        metadata["warnings"] = [*metadata.get("warnings", ()), UNCITED]
    body: ChatCompletion = {
        "id": facts.answer_id,
        "object": "chat.completion",
        "created": facts.created,
        "model": facts.served,
        "choices": native_choices(native) if native else [write_choice(c, n) for n, c in enumerate(result.choices)],
        "usage": {**dialect.write_usage(facts.usage), **facts.cost()},
        "metadata": metadata,
        "system_fingerprint": FINGERPRINT,
    }
    tier = facts.service_tier
    if tier:
        body["service_tier"] = tier
    if native and not LISTED_SOURCES.isdisjoint(native):
        list_sources(body, native)
    if facts.adapt:
        facts.adapt(body)
    return dumps(body, result.large)


def reply_last(results: list[ChatResult], facts: ChatFacts) -> bytes:
    """Return the body for the only result of a list, and release the result in the calling thread: freeing millions of
    values takes as long as reading them."""
    written = reply(results[0], facts)
    results.clear()
    return written


def _cites_documents(result: ChatResult) -> bool:
    return any(not source.url for choice in result.choices for source in sources_of(choice))


def frames(batches: Iterable[Batch], facts: ChatFacts) -> Iterator[bytes]:
    """Write server-sent events, one item a batch. A complete response ends with usage, metadata and [DONE]; a failed
    one with an `error` event and no [DONE], so that no client takes it for complete."""
    stream = _Stream(facts)
    return write_frames(batches, stream.write, error_frame)


def error_frame(error: GatewayError) -> bytes:
    return b"event: error\ndata: %b\n\n" % orjson.dumps(dialect.error_body(error))


def _add_listed(tail: ChatChunkContent, listed: dict[str, Any]) -> None:
    """Add the sources that the upstream listed beside its choices."""
    for name in LISTED_SOURCES:
        if listed.get(name):
            tail[name] = listed[name]  # type: ignore[literal-required]


class _Stream:
    """The state of one stream: the parts of each choice that were sent."""

    def __init__(self, facts: ChatFacts) -> None:
        self._facts = facts
        self._head = b""
        self._begun: set[int] = set()
        self._ended: set[int] = set()
        self._calls: dict[tuple[int, int], int] = {}
        self._bare: set[tuple[int, int]] = set()  # calls without any arguments so far
        self._hidden: set[tuple[int, int]] = set()  # calls that the provider executed
        self._reasoning: dict[tuple[int, int], int] = {}
        self._shown: defaultdict[tuple[int, int], set[str]] = defaultdict(set)  # members of each block of reasoning
        self._count: defaultdict[tuple[str, int], int] = defaultdict(int)  # items of each list in each choice
        self._warnings: list[str] = []

    def write(self, batch: Batch) -> bytes:
        """Return all frames of one batch, joined."""
        sent: list[bytes] = []
        for event in batch:
            if type(event) is NativeChunk:
                head = self._head or self._open()
                if event.ready:
                    sent += (head, (END + head).join(event.ready), END)
                else:
                    sent += (head, orjson.dumps(self._relay(event.body["choices"])), END)
            elif type(event) is TextDelta and not event.signature and not event.choice and 0 in self._begun:
                sent += (self._head, TEXT_HEAD, orjson.dumps(event.text), TEXT_TAIL)
            elif type(event) is Heartbeat:
                sent.append(KEEP_ALIVE)
            else:
                sent.append(self._piece(event))
        return b"".join(sent)

    def _open(self) -> bytes:
        """Return the beginning of all chunks. The serving model is certain only when the first one has arrived."""
        self._head = CHUNK_HEAD % (
            orjson.dumps(self._facts.answer_id),
            self._facts.created,
            orjson.dumps(self._facts.served),
        )
        return self._head

    def _relay(self, choices: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for choice in choices:
            delta = choice["delta"]
            for name in NUMBERED:
                if name in delta:
                    self._number(name, choice)
            if delta.get("reasoning_content"):
                delta["reasoning"] = delta.get("reasoning") or delta["reasoning_content"]  # clients read either name
            elif delta.get("reasoning"):
                delta["reasoning_content"] = delta["reasoning"]
            reason = choice.get("finish_reason")
            if reason:
                choice["finish_reason"] = write_finish(reason)
                choice.pop("usage", None)
                self._ended.add(choice.get("index", 0))
                continue
            if reason is not None:
                choice["finish_reason"] = None  # some servers send "" until the end
            if choice.get("index"):
                self._begun.add(choice["index"])
        return choices

    def _chunk(self, choice: int, delta: ChatDelta, reason: dialect.ChatFinish | None = None) -> bytes:
        if choice not in self._begun:
            self._begun.add(choice)
            delta = {"role": "assistant", **delta}
        body: list[ChatChunkChoice] = [{"index": choice, "delta": delta, "finish_reason": reason}]
        return (self._head or self._open()) + orjson.dumps(body) + END

    def _piece(self, event: Event) -> bytes:
        """Return the frames of any other event; b"" for events that this format does not show."""
        match event:
            case TextDelta():
                return self._text(event)
            case ToolCallDelta():
                return self._call(event)
            case ReasoningDelta():
                return self._reason(event)
            case RefusalDelta():
                return self._chunk(event.choice, {"refusal": event.text})
            case SourceFound():
                return self._cite(event)
            case PartFound() if not isinstance(event.part, VendorPart):
                index = self._next("images", event.choice)
                return self._chunk(event.choice, {"images": [{**write_image(event.part), "index": index}]})
            case Notice():
                self._warnings.append(event.message)
            case Finished():
                return self._finish(event)
            case Failed():
                return error_frame(event.error)
        return b""

    def _next(self, name: str, choice: int) -> int:
        """Return the place of the next item of a list: OpenAI's Python SDK joins the items of every list by their
        `index`, and fails without one."""
        place = self._count[name, choice]
        self._count[name, choice] += 1
        return place

    def _number(self, name: str, choice: dict[str, Any]) -> None:
        """Number the items of a list that the upstream sent."""
        items = choice["delta"][name]
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict):
                item["index"] = self._next(name, choice.get("index", 0))

    def _text(self, event: TextDelta) -> bytes:
        delta: ChatDelta = {"content": event.text}
        if event.signature:
            index = self._next("reasoning_details", event.choice)
            delta["reasoning_details"] = [write_token(event.signature, event.vendor, CONTENT_ID, index)]
        return self._chunk(event.choice, delta)

    def _cite(self, event: SourceFound) -> bytes:
        if event.source.url:
            index = self._next("annotations", event.choice)
            return self._chunk(event.choice, {"annotations": [{**write_annotation(event.source), "index": index}]})
        self._warnings.append(UNCITED)
        return b""

    def _call(self, event: ToolCallDelta) -> bytes:
        """Write a piece of a tool call; calls are numbered in the order in which they begin, one number for each
        block."""
        key = (event.choice, event.block)
        if event.executed or key in self._hidden:
            # Only the first piece names who executes the call.
            self._hidden.add(key)
            return b""
        place = self._calls.get(key)
        if place is None:
            place = self._calls[key] = self._next("tool_calls", event.choice)
            call: ChatToolCall = {"index": place, "id": event.id, "type": "custom" if event.custom else "function"}
            if not event.custom:
                self._bare.add(key)
        else:
            call = {"index": place}
        add_piece(call, event)
        if event.arguments:
            self._bare.discard(key)
        delta: ChatDelta = {"tool_calls": [call]}
        if event.signature:
            index = self._next("reasoning_details", event.choice)
            delta["reasoning_details"] = [write_token(event.signature, event.vendor, event.id, index)]
        return self._chunk(event.choice, delta)

    def _reason(self, event: ReasoningDelta) -> bytes:
        """Write a piece of reasoning. Pieces of one block share an index, so that clients can join them: therefore one
        item a chunk, and `format` and `id` once."""
        key = (event.choice, event.block)
        delta: ChatDelta = {"reasoning": event.text, "reasoning_content": event.text} if event.text else {}
        sent = []
        if event.vendor or event.signature or event.sealed:
            if key not in self._reasoning:
                self._reasoning[key] = self._next("reasoning_details", event.choice)
            piece = Reasoning(event.text, event.signature, event.sealed, event.vendor, event.ident, event.summary)
            shown = self._shown[key]
            for item in write_block(piece, self._reasoning[key]):
                if "format" in shown:
                    item.pop("format", None)
                if "id" in shown:
                    item.pop("id", None)
                shown.update(item)
                delta["reasoning_details"] = [item]
                sent.append(self._chunk(event.choice, delta))
                delta = {}
        if delta:
            sent.append(self._chunk(event.choice, delta))
        return b"".join(sent)

    def _finish(self, event: Finished) -> bytes:
        """Write finish chunks for the choices that have none yet, then usage and metadata, then [DONE]."""
        sent: list[bytes] = []
        for choice, block in sorted(self._bare):
            # Clients parse the joined arguments: for a call without any they must be an empty object.
            call: ChatToolCall = {"index": self._calls[choice, block], "function": {"arguments": "{}"}}
            sent.append(self._chunk(choice, {"tool_calls": [call]}))
        for choice in sorted(self._begun | {0} | set(range(len(event.reasons)))):
            if choice not in self._ended:
                reason = event.reasons[choice] if choice < len(event.reasons) else event.reason
                sent.append(self._chunk(choice, {}, dialect.FINISH_WRITE[reason]))
        try:
            sent.append(self._tail(event.native))
        except GatewayError as error:
            sent.append(error_frame(error))
        return b"".join(sent)

    def _tail(self, listed: dict[str, Any]) -> bytes:
        facts = self._facts
        metadata = facts.metadata()
        if self._warnings:
            metadata["warnings"] = list(dict.fromkeys([*metadata.get("warnings", ()), *self._warnings]))
        tail: ChatChunkContent = {
            "choices": LAST_CHOICE,
            "usage": {**dialect.write_usage(facts.usage), **facts.cost()},
            "metadata": metadata,
        }
        tier = facts.service_tier
        if tier:
            tail["service_tier"] = tier
        if listed:
            _add_listed(tail, listed)
        if facts.adapt:
            facts.adapt(tail)
        head = (self._head or self._open())[:CHOICES_AT]
        return head + orjson.dumps(tail)[1:] + b"\n\n" + DONE
