"""Streamed answers: what is held back, what is passed on, and how every end is settled."""

import weakref
from collections import UserList

import gevent
import pytest
from gevent.event import Event
from msgspec.structs import replace
from support.engine_runs import TIMEOUTS, Providers, make_run, target_at
from support.fleet import wait_until

from gateway.engine import streaming
from gateway.errors import StreamTruncated, Unavailable, UpstreamFailed
from gateway.neutral.chat import ChatRequest, Conversation, Native
from gateway.neutral.embeddings import EmbeddingsInput, EmbeddingsRequest
from gateway.neutral.events import (
    Failed,
    Finished,
    Heartbeat,
    MediaPiece,
    NativeChunk,
    Notice,
    Progress,
    Started,
    TextDelta,
    ToolCallDelta,
)
from gateway.neutral.parts import Message, Text
from gateway.neutral.request import Options, Requirements
from gateway.neutral.sound_length import SoundLength
from gateway.neutral.usage import Usage
from gateway.runtime.byte_budget import ByteBudget, HeldBytes
from gateway.runtime.disconnects import dismiss
from gateway.runtime.threads import hold

NORTH, SOUTH = target_at("north"), target_at("south")
USED = Usage(input=3, output=2)
BROKEN = UpstreamFailed("It broke.", upstream_status=500)
BEGUN = [Started("m-1", "up-1")]
HELLO = [TextDelta("Hello")]
DONE = [Finished("stop", USED)]
GOOD = [BEGUN, HELLO, DONE]
STREAMED = EmbeddingsRequest("m", Requirements(stream=True, max_tokens=9), lambda: EmbeddingsInput(("Hello",)))
FAST = EmbeddingsRequest(
    "m", Requirements(stream=True, max_tokens=9), lambda: EmbeddingsInput(("Hello",)), Options(service_tier="fast")
)


def texts(batches):
    return [event.text for batch in batches for event in batch if type(event) is TextDelta]


def read(run):
    return list(streaming.events(run))


def test_nothing_is_shown_before_the_first_content_and_then_all_that_was_held(clock):
    run = make_run(clock, Providers(north=GOOD), NORTH)
    assert read(run) == [[*BEGUN, *HELLO], DONE]
    assert run.outcome.serving.usage == USED and run.settlement.call_names()[-1] == "close"


@pytest.mark.parametrize("start", [BROKEN, [BEGUN, [Failed(BROKEN)]], [BEGUN], [BEGUN, [Notice("no seed")]]])
def test_a_failure_before_the_first_content_is_not_seen_by_the_caller(clock, start):
    run = make_run(clock, Providers(north=start, south=GOOD), NORTH, SOUTH)
    assert texts(read(run)) == ["Hello"] and run.outcome.warnings == []
    assert [attempt.succeeded for attempt in run.outcome.attempts] == [False, True]


def test_the_error_is_raised_if_no_provider_begins(clock):
    run = make_run(clock, Providers(north=BROKEN), NORTH)
    with pytest.raises(UpstreamFailed):
        read(run)
    assert run.settlement.call_names()[-1] == "close"


def test_a_failure_after_content_ends_the_stream_with_its_error_and_no_failover(clock):
    run = make_run(clock, Providers(north=[BEGUN, HELLO, [Failed(BROKEN, USED)]], south=GOOD), NORTH, SOUTH)
    assert read(run)[-1] == [Failed(BROKEN, USED)] and len(run.outcome.attempts) == 1
    assert "abandon" in run.settlement.call_names() and run.outcome.serving.usage == USED


def test_a_stream_without_an_end_is_truncated(clock):
    (last,) = read(make_run(clock, Providers(north=[BEGUN, HELLO]), NORTH))[-1]
    assert type(last) is Failed and type(last.error) is StreamTruncated


def test_a_sign_of_life_goes_out_at_once_and_is_not_content(clock):
    run = make_run(clock, Providers(north=[[Heartbeat()], BEGUN, [Heartbeat()], HELLO, DONE]), NORTH)
    assert read(run) == [[Heartbeat()], [Heartbeat()], [*BEGUN, *HELLO], DONE]


def test_thousands_of_empty_events_are_passed_on_before_the_content(clock):
    empty = NativeChunk("openai", {}, False)
    run = make_run(clock, Providers(north=[*([empty] * 100 for _ in range(150)), HELLO, DONE]), NORTH)
    first, *batches = read(run)
    assert first == [empty] * 10_100
    assert texts(batches) == ["Hello"]


def test_a_silent_provider_is_left_for_one_that_waits(clock):
    def silent():
        clock.advance(TIMEOUTS.first_byte_s + 0.1)
        yield [Heartbeat()]
        yield HELLO

    run = make_run(clock, Providers(north=silent, south=GOOD), NORTH, SOUTH)
    assert texts(read(run)) == ["Hello"]
    assert [attempt.target.provider.id for attempt in run.outcome.attempts] == ["north", "south"]


class Prompt(UserList):
    """A prompt that shows when nothing refers to it any more."""


def chat_with(prompt, **more):
    def decode():
        return Conversation((Message("user", (Text(prompt[0]),)),))

    return ChatRequest("m", Requirements(stream=True), decode, native=Native("openai", {"messages": prompt}), **more)


def test_nothing_holds_the_prompt_once_the_answer_has_begun(clock):
    prompt = Prompt(["Hello"])
    gone = weakref.ref(prompt)
    run = make_run(clock, Providers(north=[BEGUN, HELLO, HELLO, DONE]), NORTH, request=chat_with(prompt))
    run.context.request = chat_with(prompt)
    del prompt
    batches = streaming.events(run)
    next(batches)
    assert gone() is not None
    next(batches)
    assert gone() is None and run.request.conversation().messages == ()
    assert list(batches) == [DONE]


def test_the_prompt_is_held_while_another_provider_may_need_it(clock):
    prompt = Prompt(["Hello"])
    gone = weakref.ref(prompt)
    run = make_run(clock, Providers(north=[BEGUN, [Heartbeat()], [Failed(BROKEN)]], south=GOOD), NORTH, SOUTH)
    run.request = chat_with(prompt)
    del prompt
    batches = streaming.events(run)
    assert next(batches) == [Heartbeat()] and gone() is not None
    assert texts(batches) == ["Hello"] and gone() is None


def test_the_prompt_is_held_while_a_second_attempt_may_need_it(clock):
    prompt = Prompt(["Hello"])
    run = make_run(clock, Providers(north=[BEGUN, HELLO, HELLO, DONE]), NORTH, request=chat_with(prompt), hedged=True)
    assert texts(read(run)) == ["Hello", "Hello"]
    assert run.request.native.body["messages"] is prompt


def test_a_stream_that_has_begun_counts_no_bytes_of_its_prompt_unless_its_surface_keeps_them(clock):
    for kept, count in ((False, 0), (True, 700)):
        budget = ByteBudget(1000, 1000)
        held = HeldBytes(budget, "one")
        held.grow(700)
        hold(held)
        run = make_run(clock, Providers(north=GOOD), NORTH, request=chat_with(["Hello"], kept=kept))
        read(run)
        hold(None)
        assert budget.held == count
        held.release()
        assert budget.held == 0


def test_the_tier_of_a_stream_is_the_requested_one_after_its_prompt_is_gone(clock):
    request = chat_with(["Hello"], options=Options(service_tier="fast"))
    run = make_run(clock, Providers(north=[BEGUN, HELLO, [Progress(USED)], [Failed(BROKEN)]]), NORTH, request=request)
    list(streaming.events(run))
    assert run.outcome.serving.service_tier == "fast"


def test_a_store_that_is_away_turns_a_good_end_into_a_failure(clock):
    run = make_run(clock, Providers(north=GOOD), NORTH)
    run.settlement.refuse = Unavailable("no store")
    (last,) = read(run)[-1]
    assert type(last) is Failed and last.error is run.settlement.refuse


def test_more_is_reserved_when_an_answer_outgrows_what_is_surely_paid(clock):
    run = make_run(clock, Providers(north=[BEGUN, HELLO, HELLO, DONE]), NORTH)
    run.settlement.checked_length = 6
    read(run)
    assert run.settlement.call_names().count("grow") == 1


def test_usage_that_is_reported_midway_counts_when_the_caller_leaves(clock):
    run = make_run(clock, Providers(north=[BEGUN, HELLO, [Progress(USED)], HELLO, DONE]), NORTH)
    batches = streaming.events(run)
    next(batches), next(batches)
    batches.close()
    serving = run.outcome.serving
    assert (serving.finish, serving.usage, serving.output_length) == ("client_disconnect", USED, 5)
    assert run.upstreams.answering[0].closed and run.settlement.call_names()[-1] == "close"


@pytest.mark.parametrize("leaves", [True, False])
def test_a_stream_without_a_reported_tier_is_billed_at_the_requested_tier(clock, leaves):
    run = make_run(
        clock, Providers(north=[BEGUN, HELLO, [Progress(USED)], HELLO, [Failed(BROKEN)]]), NORTH, request=FAST
    )
    batches = streaming.events(run)
    if leaves:
        next(batches), next(batches)
        batches.close()
    else:
        list(batches)
    assert run.outcome.serving.usage == USED and run.outcome.serving.service_tier == "fast"


def test_after_a_hang_up_a_stream_is_read_on_for_its_exact_usage(clock):
    def slowly():
        for batch in GOOD:
            yield batch
            gevent.sleep(0.01)

    run = make_run(clock, Providers(north=slowly), NORTH, drain_s=5.0, request=STREAMED)
    batches = streaming.events(run)
    next(batches)
    batches.close()
    assert "abandon" not in run.settlement.call_names() and "keep" in run.settlement.call_names()
    wait_for_close(run)
    assert run.outcome.serving.usage.basis == "drained" and run.upstreams.answering[0].closed
    assert run.settlement.call_names().count("abandon") == 1 and run.settlement.call_names()[-1] == "close"


@pytest.mark.parametrize("reported", ["", "default"])
def test_a_drained_stream_is_billed_at_its_reported_tier_else_the_requested_one(clock, reported):
    def slowly():
        yield from (BEGUN, HELLO)
        gevent.sleep(0.01)
        yield [Finished("stop", USED, service_tier=reported)]

    run = make_run(clock, Providers(north=slowly), NORTH, drain_s=5.0, request=FAST)
    batches = streaming.events(run)
    next(batches)
    batches.close()
    wait_for_close(run)
    assert run.outcome.serving.usage.basis == "drained" and run.outcome.serving.service_tier == (reported or "fast")


@pytest.mark.parametrize("event", [TextDelta(5), TextDelta({"a": 1}), TextDelta(None), ToolCallDelta(0, ["x"])])
def test_a_text_of_another_type_is_a_provider_error(clock, event):
    """It used to end the stream as an internal fault of the gateway, without a fallback to another provider."""
    run = make_run(clock, Providers(north=[BEGUN, [event], DONE], south=GOOD), NORTH, SOUTH)
    assert texts(read(run)) == ["Hello"]


class SilentUpstream:
    """An upstream that waits between its `first` and `later` batches until its caller has left."""

    def __init__(self, first, later):
        self.first = first
        self.later = later
        self.silent = Event()
        self.caller_left = Event()

    def __call__(self):
        yield from self.first
        self.silent.set()
        self.caller_left.wait()
        yield from self.later


def leave_in_the_silence(run, upstream):
    """Read a stream in a greenlet until it waits for the upstream, and disconnect its caller."""
    caller = gevent.spawn(read, run)
    assert upstream.silent.wait(60)
    dismiss(caller)
    upstream.caller_left.set()
    wait_for_close(run)
    return run.outcome.serving


def wait_for_close(run):
    wait_until(lambda: run.settlement.call_names()[-1:] == ["close"] and not run.reading_on.count)


def test_a_caller_who_leaves_while_the_upstream_is_silent_is_billed_by_its_usage(clock):
    """The greenlet waits for the upstream: an exception there would end the upstream's batches."""
    upstream = SilentUpstream([[*BEGUN, *HELLO]], [DONE])
    run = make_run(clock, Providers(north=upstream), NORTH, drain_s=5.0, request=STREAMED)
    serving = leave_in_the_silence(run, upstream)
    assert serving.usage == replace(USED, basis="drained") and run.reading_on.count == 0


def test_a_caller_who_leaves_before_any_content_ends_a_call_that_is_then_billed_no_further(clock):
    upstream = SilentUpstream([], [[*BEGUN, *HELLO]])
    run = make_run(clock, Providers(north=upstream), NORTH, drain_s=5.0, request=STREAMED)
    serving = leave_in_the_silence(run, upstream)
    assert serving.finish == "client_disconnect" and serving.usage is None and not serving.output_length


def test_an_answer_is_read_on_for_a_limited_time(clock):
    def endless():
        yield [*BEGUN, *HELLO]
        while True:
            gevent.sleep(0.01)
            yield HELLO

    target = target_at("north", cancellation=False)
    run = make_run(clock, Providers(north=endless), target, drain_s=0.05, request=STREAMED)
    batches = streaming.events(run)
    next(batches)
    batches.close()
    wait_for_close(run)
    serving = run.outcome.serving
    assert serving.finish == "client_disconnect" and serving.output_length > 5 and run.reading_on.count == 0
    assert run.upstreams.answering[0].closed and run.settlement.call_names()[-1] == "close"


def test_the_end_of_the_worker_ends_background_reading(clock):
    upstream = SilentUpstream([[*BEGUN, *HELLO]], [])
    target = target_at("north", cancellation=False)
    run = make_run(clock, Providers(north=upstream), target, drain_s=30.0, request=STREAMED)
    batches = streaming.events(run)
    next(batches)
    batches.close()
    assert upstream.silent.wait(60)
    assert run.reading_on.count == 1 and "abandon" not in run.settlement.call_names()
    run.reading_on.stop()
    assert run.reading_on.count == 0 and run.settlement.call_names()[-1] == "close"
    assert run.outcome.serving.output_length == 5


def test_usage_that_came_with_the_last_content_counts_when_the_caller_does_not_take_it(clock):
    run = make_run(clock, Providers(north=[[*BEGUN, *HELLO], [*HELLO, *DONE]]), NORTH, drain_s=5.0, request=STREAMED)
    batches = streaming.events(run)
    next(batches), next(batches)
    batches.close()
    assert run.outcome.serving.usage == replace(USED, basis="drained") and run.settlement.call_names()[-1] == "close"


def test_long_sound_is_counted_in_several_turns_of_the_event_loop(clock):
    frames = (b"\xff\xfb\x90\x64" + bytes(413)) * 200
    sound = frames + b"\xff\xe2" * 20_000 + frames  # the middle begins no frame
    expected = SoundLength()
    expected.add(sound)
    run = make_run(clock, Providers(north=[BEGUN, [MediaPiece(sound)], DONE]), NORTH)
    turns = []
    counting = gevent.spawn(read, run)
    while not counting.ready():
        turns.append(gevent.sleep(0))
    assert counting.get() and len(turns) > len(sound) // streaming.COUNTED_BYTES
    assert run.outcome.serving.sound.milliseconds == expected.milliseconds > 10_000
