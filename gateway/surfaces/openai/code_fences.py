"""Removes the Markdown fence that chat models put around a text despite their instructions."""

import re
from collections.abc import Iterable, Iterator

from gateway.neutral.events import Batch, Event, Finished, TextDelta
from gateway.surfaces.web.facts import Facts

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
