"""Streams are written in linear time: no event searches all earlier content, whatever a provider sends."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from support.steps import count_steps

from gateway.neutral.events import (
    Batch,
    BlockDone,
    Finished,
    Notice,
    PartFound,
    ReasoningDelta,
    RefusalDelta,
    SourceFound,
    Started,
    TextDelta,
    ToolCallDelta,
)
from gateway.neutral.parts import Image, Media, Source
from gateway.neutral.usage import Usage
from gateway.surfaces.aisdk.stream import SearchOrder
from gateway.surfaces.anthropic import frames as messages
from gateway.surfaces.cohere import chat_v1_writer, cohere_chat_writer
from gateway.surfaces.openai import chat_writer, completions_writer
from gateway.surfaces.openai.chat import WholeCalls
from gateway.surfaces.responses import items, reader, response_creation, schema
from gateway.surfaces.responses.assembler import Assembler

FEW, TIMES = 60, 4
GROWTH = 5.5  # ratio of steps for four times the events; quadratic code would need sixteen times


class Facts:
    """The facts that every writer reads."""

    answer_id, requested_model, served = f"resp_{'0' * 32}", "acme/model", "acme/model"
    created, service_tier, hides_reasoning = 1_767_225_600, "", False
    usage = Usage(input=3, output=4)
    context = SimpleNamespace(shown_id="r1")
    serving = SimpleNamespace(
        target=SimpleNamespace(
            provider=SimpleNamespace(id="acme"), credential=SimpleNamespace(ident="k"), completes=False
        ),
        at_us=0,
        duration_ms=0,
    )

    def cost(self) -> dict[str, Any]:
        return {"cost": 0.5, "is_byok": False, "cost_details": {"total_cost": 0.5}}

    def metadata(self) -> dict[str, Any]:
        return {"request_id": "r1", "routing": []}


def respond(batches: Iterable[Batch], **asked: Any) -> Iterator[bytes]:
    body = schema.decode(orjson.dumps({"model": "m", "input": "Hi"} | asked))
    return response_creation.stream_frames(
        batches, reader.read_response(body, [], [items.user_text("Hi")]), Facts(), lambda response: True
    )


WRITERS: dict[str, Callable[[Iterable[Batch]], Iterator[bytes]]] = {
    "chat": lambda batches: chat_writer.frames(batches, Facts()),
    "completions": lambda batches: completions_writer.frames(
        batches,
        Facts(),  # type: ignore[arg-type]
        completions_writer.Echo("", 1),
        unfence=True,
    ),
    "chat with whole calls": lambda batches: WholeCalls(chat_writer.frames(batches, Facts())),
    "cohere v1": lambda batches: chat_v1_writer.frames(batches, Facts(), [], False),  # type: ignore[arg-type]
    "cohere": lambda batches: cohere_chat_writer.frames(batches, Facts()),  # type: ignore[arg-type]
    "messages": lambda batches: messages.frames(batches, Facts()),  # type: ignore[arg-type]
    "responses": respond,
    "responses with reasoning": lambda batches: respond(batches, reasoning={"effort": "low"}),
}
PNG = Image(Media(media_type="image/png", data="AAAA"))
STREAMS: dict[str, Callable[[int], list[Any]]] = {
    "texts": lambda count: [TextDelta("a") for _ in range(count)],
    "texts in fences": lambda count: [TextDelta("```x\n"), *(TextDelta("\n`a") for _ in range(count))],
    "blocks of text": lambda count: [TextDelta("a", n) for n in range(count)],
    "refusals": lambda count: [RefusalDelta("a", n // 2) for n in range(count)],
    "thoughts": lambda count: [ReasoningDelta("a", block=0) for _ in range(count)],
    "blocks of thoughts": lambda count: [
        event for n in range(count) for event in (ReasoningDelta("a", block=2 * n), TextDelta("b", 2 * n + 1))
    ],
    "calls": lambda count: [ToolCallDelta(n, "{}", f"c{n}", f"look{n}") for n in range(count)],
    "pieces of calls": lambda count: [
        ToolCallDelta(n % 7, "1", *((f"c{n}", "look") if n < 7 else ())) for n in range(count)
    ],
    "ends of blocks": lambda count: [
        event for n in range(count) for event in (ToolCallDelta(n, "{}", f"c{n}", "look"), BlockDone(n))
    ],
    "sources": lambda count: [TextDelta("a"), *(SourceFound(Source(f"https://a/{n}", "t")) for n in range(count))],
    "sources of blocks": lambda count: [
        event for n in range(count) for event in (TextDelta("a", n), SourceFound(Source(f"https://a/{n}", "t"), n))
    ],
    "images": lambda count: [PartFound(PNG, n) for n in range(count)],
    "notices": lambda count: [Notice(f"w{n}") for n in range(count)],
}


def steps_of(writer: str, kind: str, count: int) -> int:
    events = STREAMS[kind](count)
    batches = [[Started()], *([event] for event in events), [Finished("stop", Facts.usage)]]

    def write() -> None:
        for _ in WRITERS[writer](iter(batches)):
            continue

    return count_steps(write)


@pytest.mark.parametrize("writer", WRITERS)
def test_four_times_as_much_takes_four_times_the_steps(writer: str) -> None:
    found = {}
    for kind in STREAMS:
        with contextlib.suppress(AttributeError):
            steps_of(writer, kind, 2)  # objects that are created once
        found[kind] = steps_of(writer, kind, FEW * TIMES) / steps_of(writer, kind, FEW)
    assert {kind: growth for kind, growth in found.items() if growth > GROWTH} == {}


@pytest.mark.parametrize(("length", "large"), [(10, False), (10, True), (chat_v1_writer.THREAD_SIZE + 1, False)])
def test_a_long_end_of_a_stream_is_written_in_a_thread(
    length: int, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[bool] = []
    monkeypatch.setattr(chat_v1_writer, "compute_if", lambda far, work, *args: threads.append(far) or work(*args))
    batches: list[Batch] = [[Started()], [TextDelta("a" * length)], [Finished("stop", Facts.usage)]]
    for _ in chat_v1_writer.frames(iter(batches), Facts(), [], large):  # type: ignore[arg-type]
        continue
    assert threads[-1] is (large or length > 10) and not any(threads[:-1])


def test_sources_that_came_at_once_are_looked_at_once() -> None:
    def cite(count: int) -> int:
        batch: Batch = [SourceFound(Source(f"https://a/{n}", "t")) for n in range(count)]
        order = SearchOrder("r1", "search")
        return count_steps(lambda: [order.cite(event.source, batch) for event in batch])  # type: ignore[union-attr]

    assert cite(FEW * TIMES) / cite(FEW) < GROWTH


def test_a_source_takes_no_time_by_the_text_before_it() -> None:
    def cite(pieces: int) -> float:
        assembler = Assembler(Facts.answer_id, {}, "origin")
        for _ in range(pieces):
            assembler.add(TextDelta("a"))
        source = SourceFound(Source("https://a/", "t"), 0)
        began = time.process_time()
        for _ in range(500):
            assembler.add(source)
        return time.process_time() - began

    assert min(cite(40_000) for _ in range(3)) < 10 * min(cite(1) for _ in range(3))
