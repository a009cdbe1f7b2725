import gc

import gevent
import pytest

from gateway.billing.context import Outcome
from gateway.engine.cache import CachedAnswer
from gateway.engine.coalescing import MAX_FRAMES_AHEAD, SharedCall, fill
from gateway.errors import StreamTruncated, UpstreamFailed, UpstreamTimeout
from gateway.neutral.events import Failed, Finished, Heartbeat, Started, TextDelta
from gateway.runtime.byte_budget import ByteBudget

OUTCOME = Outcome(None)
CUT = StreamTruncated("cut")


@pytest.fixture
def shared_call(clock):
    return SharedCall(clock, "r1", frozenset({"p/m"}))


def text_batches(*texts, gap_s=0.0, end=None):
    """A stream of one batch a word."""
    for text in texts:
        gevent.sleep(gap_s)
        yield [Heartbeat()]
        yield [Started()] if text == "" else [TextDelta(text)]
    yield [end or Finished("stop")]


def launch(shared_call, batches):
    shared_call.join()
    shared_call.start(OUTCOME, lambda one: fill(one, batches, lambda done: CachedAnswer(None, done.frames)))


def text_of(batches):
    return "".join(event.text for batch in batches for event in batch if type(event) is TextDelta)


def test_all_readers_get_the_whole_stream_whenever_they_come(shared_call):
    launch(shared_call, text_batches("", "a", "b", "c", gap_s=0.02))
    readers = [gevent.spawn(text_of, shared_call.batches(1.0)) for _ in range(3)]
    gevent.sleep(0.05)
    readers.append(gevent.spawn(text_of, shared_call.batches(1.0)))
    gevent.joinall(readers, timeout=60)
    assert [reader.value for reader in readers] == ["abc"] * 4
    assert text_of(shared_call.batches(1.0)) == "abc"


def test_readers_do_not_share_their_events(shared_call):
    launch(shared_call, text_batches("a"))
    first, second = (next(shared_call.batches(1.0)) for _ in range(2))
    assert first == second and first[0] is not second[0]


def test_heartbeats_reach_each_reader_and_are_not_stored(shared_call):
    launch(shared_call, text_batches("a", gap_s=0.12))
    batches = list(shared_call.batches(0.05))
    assert batches[0] == [Heartbeat()] and [Heartbeat()] not in list(shared_call.batches(0.05))


def test_the_gaps_of_a_stream_are_noted(shared_call):
    launch(shared_call, text_batches("a", "b", gap_s=0.05))
    list(shared_call.batches(1.0))
    assert shared_call.frames[0][0] == 0 and 30 <= shared_call.frames[1][0] <= 200


def test_a_failure_before_the_first_batch_is_raised(shared_call):
    launch(shared_call, text_batches(end=Failed(CUT)))
    with pytest.raises(StreamTruncated):
        next(shared_call.batches(1.0))


def test_a_failure_after_the_first_batch_comes_as_an_event_to_all(shared_call):
    launch(shared_call, text_batches("a", end=Failed(CUT)))
    ends = [list(shared_call.batches(1.0))[-1] for _ in range(2)]
    assert ends == [[Failed(CUT)]] * 2 and not shared_call.landed and shared_call.entry is None


def test_without_readers_the_answer_is_given_up(shared_call):
    ended = []

    def endless():
        try:
            while True:
                gevent.sleep(0.01)
                yield [TextDelta("x")]
        finally:
            ended.append(True)

    launch(shared_call, endless())
    shared_call.join()
    shared_call.leave()
    gevent.sleep(0.05)
    assert not ended
    shared_call.leave()
    gevent.sleep(0.05)
    assert ended


def test_a_waiting_reader_has_a_separate_deadline(shared_call):
    shared_call.join()
    with pytest.raises(UpstreamTimeout):
        shared_call.wait(0.05)


def test_waiting_requests_learn_that_the_call_was_abandoned(shared_call):
    waiter = gevent.spawn(shared_call.wait, 2)
    gevent.sleep(0)
    shared_call.fail()
    with pytest.raises(UpstreamFailed, match="given up"):
        waiter.get(timeout=60)


def test_events_without_bytes_reach_readers_and_are_not_stored(shared_call):
    odd = [TextDelta(object())]
    launch(shared_call, iter([odd, [Finished("stop")]]))
    assert next(iter(shared_call.batches(1.0))) is odd
    assert shared_call.uncacheable and shared_call.entry is None and shared_call.landed


def test_an_answer_without_end_holds_no_more_than_its_readers_have_yet_to_read(clock):
    produced = []

    def endless():
        while True:
            produced.append(1)
            yield [TextDelta("x" * 1000)]
            gevent.sleep(0)

    shared_call = SharedCall(clock, "r1", frozenset(), max_bytes=100_000)
    launch(shared_call, endless())
    batches = shared_call.batches(1.0)
    for _ in range(2000):
        next(batches)
    gevent.sleep(0.05)
    assert shared_call.overgrown and len(shared_call.frames) <= MAX_FRAMES_AHEAD + 1
    assert len(produced) <= 2000 + MAX_FRAMES_AHEAD + 2
    batches.close()
    shared_call.leave()
    gevent.sleep(0.05)
    before = len(produced)
    gevent.sleep(0.05)
    assert len(produced) == before


def test_answers_in_progress_share_a_budget_and_those_without_room_are_only_passed_on(clock):
    budget = ByteBudget(10_000, 10_000)
    texts = ["x" * 1_000] * 20
    calls = [SharedCall(clock, "r1", frozenset(), budget=budget) for _ in range(2)]
    for shared_call in calls:
        launch(shared_call, text_batches(*texts))
    readers = [gevent.spawn(text_of, shared_call.batches(1.0)) for shared_call in calls]
    gevent.joinall(readers, timeout=60)
    assert [reader.value for reader in readers] == ["".join(texts)] * 2
    assert all(shared_call.overgrown for shared_call in calls) and budget.held <= 10_000
    calls.clear()
    del shared_call, readers
    gc.collect()
    assert budget.held == 0


def test_an_overgrown_answer_is_whole_for_its_readers_and_not_kept(clock):
    shared_call = SharedCall(clock, "r1", frozenset(), max_bytes=10)
    launch(shared_call, text_batches(*("abc" for _ in range(1000))))
    readers = [gevent.spawn(text_of, batches) for batches in (shared_call.batches(1.0), shared_call.batches(1.0))]
    gevent.joinall(readers, timeout=60)
    assert [reader.value for reader in readers] == ["abc" * 1000] * 2
    assert shared_call.landed and shared_call.entry is None
