import gevent
import pytest

from gateway.engine.cache import Entry
from gateway.engine.flight import AHEAD, Flight, fly
from gateway.engine.outcome import Outcome
from gateway.errors import StreamTruncated, UpstreamFailed, UpstreamTimeout
from gateway.neutral.events import Failed, Finished, Silent, Started, TextDelta

OUTCOME = Outcome(None)
CUT = StreamTruncated("cut")


@pytest.fixture
def flight(clock):
    return Flight(clock, "r1", frozenset({"p/m"}))


def words(*texts, gap_s=0.0, end=None):
    """A stream of one batch a word."""
    for text in texts:
        gevent.sleep(gap_s)
        yield [Silent()]
        yield [Started()] if text == "" else [TextDelta(text)]
    yield [end or Finished("stop")]


def launch(flight, batches):
    flight.join()
    flight.start(OUTCOME, lambda one: fly(one, batches, lambda done: Entry(None, done.frames)))


def text_of(batches):
    return "".join(event.text for batch in batches for event in batch if type(event) is TextDelta)


def test_all_readers_get_the_whole_stream_whenever_they_come(flight):
    launch(flight, words("", "a", "b", "c", gap_s=0.02))
    readers = [gevent.spawn(text_of, flight.batches(1.0)) for _ in range(3)]
    gevent.sleep(0.05)
    readers.append(gevent.spawn(text_of, flight.batches(1.0)))
    gevent.joinall(readers, timeout=2)
    assert [reader.value for reader in readers] == ["abc"] * 4
    assert text_of(flight.batches(1.0)) == "abc"


def test_readers_do_not_share_their_events(flight):
    launch(flight, words("a"))
    first, second = (next(flight.batches(1.0)) for _ in range(2))
    assert first == second and first[0] is not second[0]


def test_silence_is_told_to_each_reader_and_not_kept(flight):
    launch(flight, words("a", gap_s=0.12))
    seen = list(flight.batches(0.05))
    assert seen[0] == [Silent()] and [Silent()] not in list(flight.batches(0.05))


def test_the_gaps_of_a_stream_are_noted(flight):
    launch(flight, words("a", "b", gap_s=0.05))
    list(flight.batches(1.0))
    assert flight.frames[0][0] == 0 and 30 <= flight.frames[1][0] <= 200


def test_a_failure_before_the_first_batch_is_raised(flight):
    launch(flight, words(end=Failed(CUT)))
    with pytest.raises(StreamTruncated):
        next(flight.batches(1.0))


def test_a_failure_after_the_first_batch_comes_as_an_event_to_all(flight):
    launch(flight, words("a", end=Failed(CUT)))
    ends = [list(flight.batches(1.0))[-1] for _ in range(2)]
    assert ends == [[Failed(CUT)]] * 2 and not flight.landed and flight.entry is None


def test_without_readers_the_answer_is_given_up(flight):
    ended = []

    def endless():
        try:
            while True:
                gevent.sleep(0.01)
                yield [TextDelta("x")]
        finally:
            ended.append(True)

    launch(flight, endless())
    flight.join()
    flight.leave()
    gevent.sleep(0.05)
    assert not ended
    flight.leave()
    gevent.sleep(0.05)
    assert ended


def test_a_waiting_reader_has_a_deadline_of_its_own(flight):
    flight.join()
    with pytest.raises(UpstreamTimeout):
        flight.wait(0.05)


def test_who_waits_learns_that_the_flight_was_given_up(flight):
    waiter = gevent.spawn(lambda: pytest.raises(UpstreamFailed, flight.wait, 2))
    gevent.sleep(0)
    flight.fail()
    assert "given up" in waiter.get(timeout=1).value.message


def test_what_has_no_bytes_reaches_its_readers_and_is_not_kept(flight):
    odd = [TextDelta(object())]
    launch(flight, iter([odd, [Finished("stop")]]))
    assert list(flight.batches(1.0))[0] is odd
    assert flight.spoiled and flight.entry is None and flight.landed


def test_an_answer_without_end_holds_no_more_than_its_readers_have_yet_to_read(clock):
    made = []

    def endless():
        while True:
            made.append(1)
            yield [TextDelta("x" * 1000)]
            gevent.sleep(0)

    flight = Flight(clock, "r1", frozenset(), most_bytes=100_000)
    launch(flight, endless())
    batches = flight.batches(1.0)
    for _ in range(2000):
        next(batches)
    gevent.sleep(0.05)
    assert flight.overgrown and len(flight.frames) <= AHEAD + 1
    assert len(made) <= 2000 + AHEAD + 2
    batches.close()
    flight.leave()
    gevent.sleep(0.05)
    before = len(made)
    gevent.sleep(0.05)
    assert len(made) == before


def test_an_overgrown_answer_is_whole_for_its_readers_and_not_kept(clock):
    flight = Flight(clock, "r1", frozenset(), most_bytes=10)
    launch(flight, words(*("abc" for _ in range(1000))))
    readers = [gevent.spawn(text_of, batches) for batches in (flight.batches(1.0), flight.batches(1.0))]
    gevent.joinall(readers, timeout=5)
    assert [reader.value for reader in readers] == ["abc" * 1000] * 2
    assert flight.landed and flight.entry is None
