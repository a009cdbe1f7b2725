"""Writes a neutral answer as a text completion: one body, or the frames of a stream."""

import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, NotRequired, TypedDict

import orjson

from gateway.dialects import openai as dialect
from gateway.errors import GatewayError
from gateway.neutral.chat import ChatResult, Choice, FinishReason
from gateway.neutral.events import Batch, Event, Failed, Finished, Heartbeat, Notice, TextDelta
from gateway.neutral.long_json import dumps
from gateway.neutral.parts import Text
from gateway.runtime.threads import compute_if
from gateway.surfaces.openai.chat_answers import ChatHead, ChatUsage
from gateway.surfaces.openai.chat_writer import DONE, KEEP_ALIVE, error_frame
from gateway.surfaces.web.facts import Facts, RoutingMetadata
from gateway.surfaces.web.http_responses import write_frames

# Removes the Markdown fence that chat models put around a text despite their instructions.

FENCE = "```"
FENCED = re.compile(r"\A\s*```[^\n`]*\n(.*?)\n?```\s*\Z", re.DOTALL)
OPENING = re.compile(r"\A\s*```[^\n`]*\n")
MAX_BLANKS = 1000  # whitespace after a fence, which may still be the end of the text
MAX_OPENING_LENGTH = 40  # characters of a fence with the name of a language


def without_fence(text: str) -> str:
    """Return a complete text without the fence around it."""
    fenced = FENCED.match(text)
    if fenced:
        return fenced[1]
    return text


class UnfencedStream:
    """The batches of a stream without fences around the texts of its choices. Text completion endpoints write none, so
    their text is not changed."""

    def __init__(self, batches: Iterable[Batch], facts: Facts) -> None:
        self._batches = batches
        self._facts = facts
        self._texts: dict[int, Unfenced] = {}

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._batches:
            yield [event for each in batch for event in self._rewrite(each)]

    def close(self) -> None:
        """Close the stream."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()

    def _rewrite(self, event: Event) -> Iterator[Event]:
        if type(event) is TextDelta and not self._facts.serving.target.completes:
            text = self._texts.setdefault(event.choice, Unfenced()).feed(event.text)
            if text:
                yield TextDelta(text, choice=event.choice)
            return
        if type(event) is Finished:
            for choice, state in self._texts.items():
                text = state.end()
                if text:
                    yield TextDelta(text, choice=choice)
        yield event


def _before_fence(text: str) -> int:
    """Return where a possible closing fence begins, with the line end before it: that part is held back until the next
    text."""
    text_before = text.rstrip()
    ticks = min(len(text_before) - len(text_before.rstrip("`")), len(FENCE))
    if ticks == len(FENCE) and len(text) - len(text_before) < MAX_BLANKS:
        at = len(text_before) - ticks
    elif ticks and text_before == text:
        at = len(text) - ticks
    else:
        at = len(text)
    if text[at - 1 : at] == "\n":
        return at - 1
    return at


class Unfenced:
    """A text that arrives in pieces, without the fence around it: a possible fence is buffered until it is certain."""

    def __init__(self) -> None:
        self._held = ""
        self._begun = False
        self._fenced = False

    def feed(self, text: str) -> str:
        self._held += text
        if not self._begun and not self._begin():
            return ""
        if not self._fenced:
            given = self._held
            self._held = ""
            return given
        keep = _before_fence(self._held)
        given = self._held[:keep]
        self._held = self._held[keep:]
        return given

    def _begin(self) -> bool:
        """Return whether the beginning of the text is decided."""
        start = self._held.lstrip()
        opening = OPENING.match(self._held)
        if opening:
            self._fenced, self._held = True, self._held[opening.end() :]
        elif FENCE.startswith(start[:3]) and "\n" not in start and len(start) < MAX_OPENING_LENGTH:
            return False
        self._begun = True
        return True

    def end(self) -> str:
        text = self._held
        self._held = ""
        if self._fenced:
            return re.sub(r"\n?```\s*\Z", "", text)
        return text


CompletionFinish = Literal["stop", "length", "content_filter"]


class CompletionMetadata(RoutingMetadata):
    log_ids: NotRequired[list[str]]


class CompletionTail(TypedDict):
    usage: ChatUsage
    metadata: CompletionMetadata
    service_tier: NotRequired[str]


class CompletionChoice(TypedDict):
    text: str
    index: int
    logprobs: None
    finish_reason: CompletionFinish | None


class CompletionChunk(ChatHead):
    object: Literal["text_completion"]
    choices: list[CompletionChoice]
    usage: NotRequired[ChatUsage]
    metadata: NotRequired[CompletionMetadata]
    service_tier: NotRequired[str]


class TextCompletion(ChatHead, CompletionTail):
    object: Literal["text_completion"]
    choices: list[CompletionChoice]


# Clients read the first choice of every chunk, so the chunk with the usage has an empty choice.
LAST_CHOICE: list[CompletionChoice] = [{"text": "", "index": 0, "logprobs": None, "finish_reason": None}]
LARGE = 1 << 17  # characters of a frame that is written in a thread


class Echo(NamedTuple):
    """The text before each choice: the prompt, if `echo` was requested, for as many choices as were requested."""

    text: str
    choices: int

    def before(self, choice: int) -> str:
        if choice < self.choices:
            return self.text
        return ""


def reply(result: ChatResult, facts: Facts, echo: Echo, *, unfence: bool) -> bytes:
    """Return the body of a completion. `unfence` removes a Markdown fence around each text."""
    return dumps(body_of(result, facts, echo, unfence=unfence), result.large)


def body_of(result: ChatResult, facts: Facts, echo: Echo, *, unfence: bool) -> TextCompletion:
    """Return the same body before serialization."""
    unfence = unfence and not facts.serving.target.completes
    choices = [
        _choice(number, echo.before(number) + _text(choice, unfence), choice.finish)
        for number, choice in enumerate(result.choices)
    ]
    return {**_head(facts), "object": "text_completion", "choices": choices, **_tail(facts, [])}


def last_frame(facts: Facts, tail: CompletionTail) -> bytes:
    """Return the end of a stream: the usage and metadata of `tail`, then [DONE]."""
    chunk: CompletionChunk = {**_head(facts), "object": "text_completion", "choices": LAST_CHOICE, **tail}
    return b"data: " + orjson.dumps(chunk) + b"\n\n" + DONE


def _text(choice: Choice, unfence: bool) -> str:
    text = "".join(part.text for part in choice.parts if isinstance(part, Text))
    if unfence:
        return without_fence(text)
    return text


def _choice(index: int, text: str, finish: FinishReason | None = None) -> CompletionChoice:
    reason = dialect.FINISH_WRITE[finish] if finish is not None else None
    if reason == "tool_calls":  # a completion has no tools
        reason = "stop"
    return {"text": text, "index": index, "logprobs": None, "finish_reason": reason}


def _head(facts: Facts) -> ChatHead:
    return {"id": facts.answer_id, "created": facts.created, "model": facts.served}


def _tail(facts: Facts, warnings: list[str]) -> CompletionTail:
    metadata: CompletionMetadata = {**facts.metadata()}
    if warnings:
        metadata["warnings"] = list(dict.fromkeys([*metadata.get("warnings", ()), *warnings]))
    tail: CompletionTail = {
        "usage": {**dialect.write_usage(facts.usage), **facts.cost()},
        "metadata": metadata,
    }
    if facts.service_tier:
        tail["service_tier"] = facts.service_tier
    return tail


def frames(batches: Iterable[Batch], facts: Facts, echo: Echo, *, unfence: bool) -> Iterator[bytes]:
    """Write server-sent events, one item a batch; the last has usage and metadata, followed by [DONE]. A failed stream
    ends with an `error` event."""
    if unfence:
        batches = UnfencedStream(batches, facts)
    return write_frames(batches, _Stream(facts, echo).write, error_frame)


class _Stream:
    """The state of one stream; `first` is the index of its first choice."""

    def __init__(self, facts: Facts, echo: Echo, first: int = 0) -> None:
        self._facts = facts
        self._first = first
        self._echo = echo
        self._begun: set[int] = set()
        self._warnings: list[str] = []

    def write(self, batch: Batch) -> bytes:
        sent: list[bytes] = []
        for event in batch:
            if type(event) is TextDelta:
                sent.append(self._add_text(event.choice, event.text))
            elif type(event) is Heartbeat:
                sent.append(KEEP_ALIVE)
            elif type(event) is Finished:
                sent.append(self._finish(event))
            elif type(event) is Failed:
                sent.append(error_frame(event.error))
            elif type(event) is Notice:
                self._warnings.append(event.message)
        return b"".join(sent)

    def _add_text(self, choice: int, text: str) -> bytes:
        if not text:
            return b""
        text = self._begin(choice) + text
        return compute_if(len(text) >= LARGE, self._frame, _choice(self._first + choice, text))

    def _begin(self, choice: int) -> str:
        """Return the echo before a choice, once."""
        if choice in self._begun:
            return ""
        self._begun.add(choice)
        return self._echo.before(choice)

    def _frame(self, choice: CompletionChoice) -> bytes:
        chunk: CompletionChunk = {**_head(self._facts), "object": "text_completion", "choices": [choice]}
        return b"data: " + orjson.dumps(chunk) + b"\n\n"

    def _finish(self, event: Finished) -> bytes:
        sent: list[bytes] = []
        for choice in sorted({0, *self._begun, *range(len(event.reasons))}):
            reason = event.reasons[choice] if choice < len(event.reasons) else event.reason
            text = self._begin(choice)
            written = _choice(self._first + choice, text, reason)
            sent.append(compute_if(len(text) >= LARGE, self._frame, written))
        try:
            sent.append(self._end(_tail(self._facts, self._warnings)))
        except GatewayError as error:
            sent.append(error_frame(error))
        return b"".join(sent)

    def _end(self, tail: CompletionTail) -> bytes:
        return last_frame(self._facts, tail)


class PromptStream(_Stream):
    """The stream of one prompt among several. `tail` reports its usage; None until it has ended successfully."""

    def __init__(self, facts: Facts, echo: Echo, unfence: bool, first: int) -> None:
        super().__init__(facts, echo, first)
        self._unfence = unfence
        self.tail: CompletionTail | None = None

    def frames(self, batches: Iterable[Batch]) -> Iterator[bytes]:
        """Write its server-sent events, without the last."""
        if self._unfence:
            batches = UnfencedStream(batches, self._facts)
        return write_frames(batches, self.write, error_frame)

    def _end(self, tail: CompletionTail) -> bytes:
        self.tail = tail
        return b""
