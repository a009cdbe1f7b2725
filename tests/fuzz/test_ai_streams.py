"""Neutral streams of any order as parts of the AI SDK's protocol: each one known to its version, blocks in order."""

import json
from types import SimpleNamespace
from typing import Any

from contract import ai_parts
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import UpstreamFailed
from gateway.neutral.events import (
    BlockDone,
    Event,
    Failed,
    Finished,
    Heartbeat,
    Notice,
    PartFound,
    Progress,
    ReasoningDelta,
    RefusalDelta,
    SourceFound,
    Started,
    TextDelta,
    ToolCallDelta,
)
from gateway.neutral.parts import Image, Media, Source, SourceRange, VendorPart
from gateway.neutral.usage import Usage
from gateway.surfaces.aisdk import stream
from gateway.surfaces.aisdk.reader import Question

WORDS = st.sampled_from(["", "a", "é\n", '"', "{}", '{"query":"x"}'])
VENDORS = st.sampled_from(["", "anthropic", "google"])
# A block is of one kind throughout: texts are the first ones, then thoughts, refusals, calls and searches.
BLOCKS = {
    0: "text",
    1: "text",
    2: "thought",
    3: "thought",
    4: "refusal",
    5: "call",
    6: "call",
    7: "search",
    8: "search",
}
SOURCES = [
    Source("https://x.example/a", "A"),
    Source("https://x.example/b"),
    Source("", "Mine", place=SourceRange("pages", 0, 1, 2)),
    Source("", "", place=SourceRange("characters", 0)),
]
FOUND = [{"tool_use_id": "id-7", "content": [{"url": "https://x.example/c", "title": None}, 3]}, {"content": "odd"}, {}]


@st.composite
def deltas(draw: Any) -> Event:
    block = draw(st.sampled_from(sorted(BLOCKS)))
    choice = draw(st.sampled_from([0, 0, 0, 1]))
    match BLOCKS[block]:
        case "text":
            return TextDelta(draw(WORDS), block, choice, draw(WORDS), draw(VENDORS))
        case "thought":
            told = (draw(WORDS), draw(WORDS), draw(WORDS), draw(VENDORS), draw(WORDS), draw(st.booleans()))
            return ReasoningDelta(*told, block=block, choice=choice)
        case "refusal":
            return RefusalDelta(draw(WORDS), block, choice)
        case "call":
            name = draw(st.sampled_from(["look", "", "look"]))
            return ToolCallDelta(block, draw(WORDS), f"id-{block}", name, draw(WORDS), draw(VENDORS), choice=choice)
        case _:
            return ToolCallDelta(block, draw(WORDS), f"id-{block}", "web_search", executed="provider", choice=choice)


OTHERS = st.one_of(
    st.builds(BlockDone, st.sampled_from(sorted(BLOCKS))),
    st.builds(SourceFound, st.sampled_from(SOURCES), st.sampled_from([-1, 0, 4])),
    st.builds(PartFound, st.builds(lambda body: VendorPart("x", "y", body), st.sampled_from(FOUND)), st.just(9)),
    st.builds(
        PartFound, st.sampled_from([Image(Media(data="AAAA")), Image(Media(url="https://x.example/i"))]), st.just(10)
    ),
    st.sampled_from([Heartbeat(), Progress(Usage()), Notice("x"), Started()]),
)
ENDS = st.one_of(
    st.builds(Finished, st.sampled_from(["stop", "tool_calls", "length", "refusal", "pause"])),
    st.just(Failed(UpstreamFailed("broken"))),
)
BATCHES = st.tuples(st.lists(st.lists(deltas() | OTHERS, min_size=1, max_size=6), max_size=8), ENDS)


def facts() -> Any:
    context = SimpleNamespace(request_id="0" * 32, shown_id="mine", at_us=1_700_000_000_000_000)
    return SimpleNamespace(
        context=context,
        outcome=SimpleNamespace(attempts=[1]),
        warnings=["max_tokens was lowered."],
        served="x/y",
        answer_id="gen_0",
        usage=Usage(input=3, output=4),
        cost=lambda: {"cost": 0.1},
        metadata=lambda: {"request_id": "mine"},
    )


@given(BATCHES, st.sampled_from([2, 3, 4]), st.sampled_from(["", "finder"]))
def test_every_stream_is_one_that_clients_of_its_version_read_to_its_end(
    stream_and_end: Any, version: int, search: str
) -> None:
    batches, end = stream_and_end
    question = Question(SimpleNamespace(), version, search, [])
    raw = b"".join(stream.frames(iter([*batches, [end]]), facts(), question)).decode()
    lines = [line for line in raw.split("\n") if line and not line.startswith(":")]
    parts = [json.loads(line.removeprefix("data: ")) for line in lines if line != "data: [DONE]"]
    for part in parts:
        ai_parts.check_part(part, version)
    ai_parts.check_order(parts)
    assert (lines[-1] == "data: [DONE]") is isinstance(end, Finished)
    first_choice = [event for batch in batches for event in batch if getattr(event, "choice", 0) == 0]
    said = "".join(event.text for event in first_choice if isinstance(event, TextDelta | RefusalDelta))
    texts = [part["delta"] for part in parts if part["type"] == "text-delta"]
    assert "".join(text for text in texts if not text.startswith("![file]")) == said
    check_searches(parts, search)


def check_searches(parts: list[dict[str, Any]], search: str) -> None:
    """Calls of searches stand under the bound name alone, each before its result, all before the sources."""
    ran = [part for part in parts if part["type"] == "tool-call" and part.get("providerExecuted")]
    results = [part for part in parts if part["type"] == "tool-result"]
    assert search or (not ran and not results)
    assert {part["toolName"] for part in (*ran, *results)} <= {search}
    call_ids = [part["toolCallId"] for part in ran]
    assert len(set(call_ids)) == len(call_ids) and set(call_ids) >= {part["toolCallId"] for part in results}
    sources = [part["id"] for part in parts if part["type"] == "source"]
    assert len(set(sources)) == len(sources)
    kinds = [part["type"] for part in parts]
    if search and sources:
        assert results and kinds.index("tool-result") < kinds.index("source")
