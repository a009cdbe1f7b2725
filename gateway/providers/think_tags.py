"""Splits reasoning between tags from the text of complete answers and streams.

This applies only to targets with the quirk, because other models may write such tags as text. The opening tag must be
at the start of the answer. Engines omit it if their template contains it, so a closing tag alone also ends reasoning in
complete answers.
"""

import dataclasses
from collections.abc import Iterator

from msgspec import structs

from gateway.neutral.chat import ChatResult, Choice
from gateway.neutral.events import (
    Batch,
    BlockDone,
    BlockEvent,
    Event,
    Failed,
    Finished,
    PartFound,
    ReasoningDelta,
    RefusalDelta,
    SourceFound,
    TextDelta,
    ToolCallDelta,
)
from gateway.neutral.parts import Part, Reasoning, Text

OPEN = "<think>"
CLOSE = "</think>"
MAX_BLANKS = 4096  # buffered white space, in characters


def split_result(result: ChatResult) -> ChatResult:
    """Return the result with the reasoning of each choice as a separate part."""
    return dataclasses.replace(result, choices=tuple(_split_choice(choice) for choice in result.choices))


def _split_choice(choice: Choice) -> Choice:
    parts: list[Part] = []
    first = True
    for part in choice.parts:
        if first and isinstance(part, Text):
            first = False
            parts += _split_text(part)
        else:
            parts.append(part)
    return structs.replace(choice, parts=tuple(parts))


def _split_text(part: Text) -> list[Part]:
    text = part.text.lstrip()
    opened = text.startswith(OPEN)
    if not opened and CLOSE not in text:
        return [part]
    thought, closed, rest = text.removeprefix(OPEN).partition(CLOSE)
    reasoning: list[Part] = [Reasoning(thought.strip())] if thought.strip() else []
    answer = rest.lstrip() if closed else ""
    # Positions in the old text are invalid in the new text.
    sources = tuple(structs.replace(source, start=-1, end=-1) for source in part.sources)
    if answer:
        return [*reasoning, structs.replace(part, text=answer, sources=sources)]
    return reasoning


def split_batches(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield the batches with reasoning as separate deltas. A tag may be split at any position."""
    splitters: dict[int, _Splitter] = {}
    for batch in batches:
        changed: Batch = []
        for event in batch:
            changed += _split_event(event, splitters)
        if changed:
            yield changed


def _split_event(event: Event, splitters: dict[int, "_Splitter"]) -> list[Event]:
    match event:
        case TextDelta():
            return splitters.setdefault(event.choice, _Splitter(event.choice)).add(event)
        case Finished() | Failed():
            held = [delta for splitter in splitters.values() for delta in splitter.flush()]
            return [*held, event]
        case ToolCallDelta() if event.choice in splitters:
            splitter = splitters[event.choice]
            return [*splitter.flush(), splitter.shift(event)]
        case RefusalDelta() | ReasoningDelta() | BlockDone() | SourceFound() | PartFound() if (
            event.block >= 0 and event.choice in splitters
        ):
            return [splitters[event.choice].shift(event)]
        case _:
            return [event]


class _Splitter:
    """The state of one choice's text: before a tag, within reasoning, in the white space after it, or in the text."""

    def __init__(self, choice: int) -> None:
        self._choice = choice
        self._state = "before"
        self._held = ""
        self._begun = False  # whether any reasoning was sent
        self._block = 0
        self._shift = 0  # splitting turns one block into two, so the indices of later blocks grow

    def add(self, event: TextDelta) -> list[Event]:
        """Return the events for a chunk of text. White space and an incomplete tag are buffered."""
        if self._state == "text":
            return [self.shift(event)]
        if self._state == "before" and not self._held:
            self._block = event.block
        self._held += event.text
        events: list[Event] = []
        if self._state == "before":
            self._open(events)
        if self._state == "within":
            self._think(events)
        if self._state == "gap":
            self._held = self._held.lstrip()
            if self._held:
                events += self.flush()
        return events

    def flush(self) -> list[Event]:
        """Return the events for the buffered text."""
        held = self._held
        self._held = ""
        if self._state == "within":
            return self._thought(held.rstrip())
        gap = self._state == "gap"
        self._state = "text"
        if not held or (gap and not held.strip()):
            return []
        return [TextDelta(held, self._block + self._shift, self._choice)]

    def shift(self, event: BlockEvent) -> BlockEvent:
        """Return an event of a later block, or of the text after the reasoning, with its new index."""
        if self._shift:
            return structs.replace(event, block=event.block + self._shift)
        return event

    def _open(self, events: list[Event]) -> None:
        text = self._held.lstrip()
        if text.startswith(OPEN):
            self._state = "within"
            self._shift = 1
            self._held = text.removeprefix(OPEN)
        elif not OPEN.startswith(text) or len(self._held) > MAX_BLANKS:
            events += self.flush()

    def _think(self, events: list[Event]) -> None:
        thought, closed, rest = self._held.partition(CLOSE)
        if closed:
            events += self._thought(thought.rstrip())
            self._state = "gap"
            self._held = rest
            return
        tag = next((size for size in range(len(CLOSE) - 1, 0, -1) if thought.endswith(CLOSE[:size])), 0)
        sure = thought[: len(thought) - tag].rstrip()
        if len(thought) - len(sure) > MAX_BLANKS:
            sure = thought[: len(thought) - tag]
        self._held = thought[len(sure) :]
        events += self._thought(sure)

    def _thought(self, text: str) -> list[Event]:
        thought = text if self._begun else text.lstrip()
        self._begun = self._begun or bool(thought)
        if thought:
            return [ReasoningDelta(thought, block=self._block, choice=self._choice)]
        return []
