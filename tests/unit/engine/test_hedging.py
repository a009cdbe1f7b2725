import gevent
import pytest
from support.engine_runs import Providers, make_run, target_at

from gateway.billing.context import Attempt
from gateway.engine.hedging import RacingAttempt, begin_hedge
from gateway.engine.streaming import _race
from gateway.neutral.events import Heartbeat, TextDelta
from gateway.routing.answer_times import HedgeShares


@pytest.fixture
def run(clock):
    return make_run(clock, Providers(), target_at("north"), target_at("south"))


def racing(run, number, batches):
    attempt = Attempt(number, run.walk.groups[number][0], 0, 0.0)
    run.outcome.attempts.append(attempt)

    def read():
        for batch in batches:
            if isinstance(batch[0], TextDelta):
                attempt.first_at = 1.0
            yield batch
        gevent.sleep(60)

    return RacingAttempt(attempt, run.settlement, [], batches=read())


def test_content_that_follows_a_heartbeat_at_once_is_kept(run):
    beat, content = [Heartbeat()], [TextDelta("Hello.")]
    lanes = racing(run, 0, [beat, beat, content]), racing(run, 1, [])
    race = _race(run, *lanes)
    assert [next(race), next(race)] == [beat, beat]
    with pytest.raises(StopIteration) as end:
        next(race)
    attempt, _, batches = end.value.value
    assert attempt is lanes[0].attempt and next(batches) == content


def test_no_attempt_begins_beside_one_that_is_read_on_since_its_caller_left(run, monkeypatch):
    run.begin(run.walk.first())
    books = run.settlement

    def second(*given):
        run.caller_gone = True  # the caller leaves while the reservation waits for the store
        return books

    monkeypatch.setattr(books, "second", second, raising=False)
    monkeypatch.setattr(run.planner, "hedges", HedgeShares(), raising=False)
    assert begin_hedge(run) is None
    assert books.call_names()[-2:] == ["unused_call", "close"] and len(run.outcome.attempts) == 1
