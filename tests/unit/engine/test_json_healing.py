from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.billing.context import Outcome
from gateway.clock import Clock
from gateway.engine.chat_engine import HEARTBEAT_INTERVAL_S, heal_result, heal_stream
from gateway.errors import StreamTruncated
from gateway.neutral.chat import ChatRequest, ChatResult, Choice, Conversation, Options, Requirements, ResponseFormat
from gateway.neutral.events import (
    Batch,
    BlockDone,
    Failed,
    Finished,
    Heartbeat,
    ReasoningDelta,
    RefusalDelta,
    SourceFound,
    Started,
    TextDelta,
    ToolCallDelta,
)
from gateway.neutral.parts import Reasoning, Refusal, Source, Text, ToolCall

FENCED = '```json\n{"a": 1}\n```'
END = Finished("stop")


class Batches:
    """A stream of batches that knows whether it was closed."""

    def __init__(self, *batches: Batch) -> None:
        self._rest: Iterator[Batch] = iter(batches)
        self.closed = False

    def __iter__(self) -> "Batches":
        return self

    def __next__(self) -> Batch:
        return next(self._rest)

    def close(self) -> None:
        self.closed = True


def run_of(clock: Clock, heal: bool = True, wanted: str = "json_object", **needs: Any) -> Any:
    """The part of a run that healing uses."""
    talk = Conversation((), response_format=ResponseFormat(wanted) if wanted else None)
    needed = Requirements(json_object=wanted == "json_object", **needs)
    request = ChatRequest("m", needed, lambda: talk, Options(heal=heal))
    return SimpleNamespace(request=request, outcome=Outcome(request), clock=clock)


def texts(batches: Iterator[Batch]) -> list[str]:
    return [event.text for batch in batches for event in batch if isinstance(event, TextDelta)]


def stream(run: Any, *batches: Batch) -> list[Batch]:
    return list(heal_stream(run, Batches(*batches)))


def test_a_whole_answer_is_healed_and_says_how(clock: Clock) -> None:
    run = run_of(clock)
    result = heal_result(run, ChatResult((Choice((Reasoning("hm"), Text(FENCED)), "stop"),)))
    assert result.choices[0].parts == (Reasoning("hm"), Text('{"a": 1}'))
    assert run.outcome.healing == ("markdown_extraction",)


def test_every_choice_is_healed_and_each_strategy_named_once(clock: Clock) -> None:
    run = run_of(clock, n=2)
    result = heal_result(run, ChatResult((Choice((Text(FENCED),), "stop"), Choice((Text("{'a': 2}"),), "stop"))))
    assert [choice.parts[0].text for choice in result.choices] == ['{"a": 1}', '{"a":2}']
    assert run.outcome.healing == ("markdown_extraction", "syntax_fix")


def test_text_in_several_parts_is_read_as_one_and_sources_lose_their_places(clock: Clock) -> None:
    source = Source("https://example.com", start=3, end=5)
    parts = (Text('```json\n{"a":', signature="s", vendor="m"), Reasoning("hm"), Text("1}\n```", sources=(source,)))
    result = heal_result(run_of(clock), ChatResult((Choice(parts, "stop"),)))
    assert result.choices[0].parts == (Text('{"a":1}', sources=(Source("https://example.com"),)), Reasoning("hm"))


@pytest.mark.parametrize("asked", [{"heal": False}, {"wanted": "text"}, {"wanted": ""}])
def test_without_the_option_or_a_json_format_nothing_is_touched(clock: Clock, asked: dict) -> None:
    run = run_of(clock, **asked)
    result, batches = ChatResult((Choice((Text(FENCED),), "stop"),)), Batches()
    assert heal_result(run, result) is result
    assert heal_stream(run, batches) is batches


UNTOUCHED = [
    Choice((Text(FENCED), Refusal("no")), "stop"),
    Choice((Text(FENCED),), "content_filter"),
    Choice((Text(FENCED),), "refusal"),
    Choice((Text(FENCED), ToolCall("1", "f", "{}")), "tool_calls"),
    Choice((Text('{"a": 1}', signature="s"),), "stop"),
    Choice((), "stop"),
]


@pytest.mark.parametrize("choice", UNTOUCHED)
def test_refusals_tool_turns_and_good_json_stay_as_they_are(clock: Clock, choice: Choice) -> None:
    run = run_of(clock)
    assert heal_result(run, ChatResult((choice,))).choices == (choice,)
    assert run.outcome.healing == ()


def test_streamed_text_is_held_healed_and_sent_as_one_before_the_end(clock: Clock) -> None:
    run = run_of(clock, stream=True)
    sent = stream(run, [Started("m"), TextDelta("```json\n")], [TextDelta('{"a":')], [TextDelta(" 1}\n```")], [END])
    assert sent == [[Started("m")], [TextDelta('{"a": 1}'), END]]
    assert run.outcome.healing == ("markdown_extraction",)


def test_reasoning_before_the_text_streams_at_once(clock: Clock) -> None:
    sent = stream(run_of(clock, stream=True), [Started(), ReasoningDelta("hm")], [TextDelta("{}", 1)], [END])
    assert sent == [[Started(), ReasoningDelta("hm")], [TextDelta("{}", 1), END]]


def test_blocks_keep_their_order_and_their_own_text_when_nothing_is_healed(clock: Clock) -> None:
    run = run_of(clock, stream=True)
    call = ToolCallDelta(1, "{}", "id", "f")
    events = [TextDelta("Let me", 0), TextDelta(" see.", 0, signature="s", vendor="m"), BlockDone(0), call]
    (sent,) = stream(run, [*events, Finished("tool_calls")])
    assert sent == [TextDelta("Let me see.", 0, signature="s", vendor="m"), BlockDone(0), call, Finished("tool_calls")]


def test_several_blocks_of_text_become_one(clock: Clock) -> None:
    events = [TextDelta("So: ", 0), BlockDone(0), ReasoningDelta("hm", block=1), TextDelta('{"a": 1}', 2), BlockDone(2)]
    found = SourceFound(Source("https://example.com", start=1, end=2), block=2)
    (sent,) = stream(run_of(clock, stream=True), [*events, found, END])
    loose = SourceFound(Source("https://example.com"), block=0)
    assert sent == [TextDelta('{"a": 1}', 0), BlockDone(0), ReasoningDelta("hm", block=1), loose, END]


@pytest.mark.parametrize("end", [Failed(StreamTruncated("cut")), Finished("content_filter")])
def test_a_broken_or_filtered_stream_brings_its_text_unhealed(clock: Clock, end: Any) -> None:
    assert texts(stream(run_of(clock, stream=True), [TextDelta(FENCED)], [end])) == [FENCED]


def test_a_streamed_refusal_stays_one(clock: Clock) -> None:
    assert texts(stream(run_of(clock, stream=True), [TextDelta(FENCED), RefusalDelta("no", 1)], [END])) == [FENCED]


def test_streams_of_several_answers_are_not_held(clock: Clock) -> None:
    batches = Batches()
    assert heal_stream(run_of(clock, stream=True, n=2), batches) is batches


def test_a_caller_who_waits_for_held_text_gets_a_comment(clock: Any) -> None:
    clock.freeze()
    batches = heal_stream(run_of(clock, stream=True), Batches([Started()], *[[TextDelta("x")]] * 3, [END]))
    assert next(batches) == [Started()]
    clock.advance(HEARTBEAT_INTERVAL_S + 1)
    assert next(batches) == [Heartbeat()]
    assert next(batches) == [TextDelta("xxx"), END]


def test_heartbeats_of_the_upstream_pass_at_once(clock: Clock) -> None:
    assert stream(run_of(clock, stream=True), [TextDelta("{}")], [Heartbeat()], [END])[0] == [Heartbeat()]


def test_closing_early_closes_the_upstream_stream(clock: Clock) -> None:
    upstream = Batches([Started()], [TextDelta("{")])
    batches = heal_stream(run_of(clock, stream=True), upstream)
    next(batches)
    batches.close()
    assert upstream.closed


def test_text_too_long_to_be_healed_is_not_held_any_longer(clock: Clock) -> None:
    """No caller waits for text that will arrive unchanged, and it does not fill the memory."""
    piece = "x" * 50_000
    sent = stream(run_of(clock, stream=True), *([TextDelta(piece)] for _ in range(10)), [END])
    assert "".join(texts(iter(sent))) == piece * 10
    assert len(sent) == 6 and sent[-1] == [END]
