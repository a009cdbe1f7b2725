"""Answers that are made once and given to several requests: who makes one, who follows, how each is recorded."""

from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from support.engine_runs import Providers, make_context, make_run, target_at

from gateway.engine import streaming, unary
from gateway.engine.answer_serialization import write_batch, write_result
from gateway.engine.cache import AnswerOrigin, CachedAnswer
from gateway.engine.coalescing import RequestCoalescing
from gateway.engine.free_answers import CLIENT_DISCONNECT, SharedRequest
from gateway.errors import OutOfCredits, UpstreamFailed
from gateway.limits.rate_limits import Slot
from gateway.metering.models import CACHED
from gateway.metering.usage_table import UsageRecord
from gateway.neutral.embeddings import EmbeddingsResult
from gateway.neutral.events import Finished, TextDelta
from gateway.neutral.usage import Usage
from gateway.routing.candidate_filter import ACCESS

NORTH = target_at("north")
USED = Usage(input=3)
KEY = "k"


def said() -> EmbeddingsResult:
    return EmbeddingsResult([[1.0]], usage=USED)


def slow() -> EmbeddingsResult:
    gevent.sleep(0.05)
    return said()


def text_batches() -> Any:
    for text in ("a", "b"):
        gevent.sleep(0.02)
        yield [TextDelta(text)]
    yield [Finished("stop", USED)]


class Cache:
    """The response cache of one process; `elsewhere`: another worker makes the answer."""

    def __init__(self) -> None:
        self.kept: dict[str, CachedAnswer] = {}
        self.elsewhere = False
        self.unlocked = 0

    def get(self, key: str) -> CachedAnswer | None:
        return self.kept.get(key)

    def put(self, key: str, entry: CachedAnswer, ttl_s: float) -> None:
        self.kept[key] = entry

    def lock(self, key: str) -> bool:
        return not self.elsewhere

    def unlock(self, key: str) -> None:
        self.unlocked += 1


class SignedInOwner:
    """Requests for the same answer, and what became of them: `rows` are usage records, `runs` the calls made."""

    def __init__(self, clock: Any, monkeypatch: pytest.MonkeyPatch, provider: Any) -> None:
        self.clock, self.provider = clock, provider
        self.cache, self.rows, self.runs, self.refusals = Cache(), [], [], []
        monkeypatch.setattr("gateway.engine.free_answers.write_row", self.rows.append)
        journal = SimpleNamespace(append=lambda row: SimpleNamespace(wait=lambda seconds: None))
        rates = SimpleNamespace(enter=lambda *given: Slot())
        settlements: Any = SimpleNamespace(journal=journal, rates=rates)
        decisions: Any = SimpleNamespace(keep=lambda *given: None, keep_refused=lambda *given: None)
        self.coalescing = RequestCoalescing(self.cache, settlements, decisions, clock, 1.0)  # type: ignore[arg-type]

    def answer(self, run: Any) -> Any:
        return unary.answer(run)

    def events(self, run: Any) -> Any:
        return streaming.events(run)

    def admit(self, shared: SharedRequest) -> Any:
        if self.refusals:
            raise self.refusals.pop()
        self.runs.append(make_run(self.clock, Providers(north=self.provider), NORTH))
        return self.runs[-1]

    def asking(self, denied: bool = False) -> SharedRequest:
        one = SimpleNamespace(candidate=SimpleNamespace(key="north/m", provider=NORTH.provider, mapping=NORTH.mapping))
        excluded = [SimpleNamespace(candidate=one.candidate, key="north/m", stage=ACCESS)] if denied else []
        resolution = SimpleNamespace(provider="")
        plan = SimpleNamespace(ranked=[] if denied else [one], excluded=excluded, resolution=resolution)
        route_plan: Any = SimpleNamespace(
            plan=plan, mappings=(NORTH.mapping,), groups=((NORTH,),), model="m", names={}, others=(), chosen=False
        )
        request = make_run(self.clock, Providers(), NORTH).request
        return SharedRequest(make_context(), request, route_plan, KEY, self.clock.monotonic() + 60)

    def generate(self, **more: Any) -> Any:
        return self.coalescing.generate(self.asking(**more), self)

    def stream(self, **more: Any) -> Any:
        return self.coalescing.stream(self.asking(**more), self)

    def keep(self, *frames: bytes) -> None:
        origin = AnswerOrigin("f" * 32, "north/m", USED, "stop", "", "m-1", "up-1")
        self.cache.kept[KEY] = CachedAnswer(origin, [(0, frame) for frame in frames])


@pytest.fixture
def open_desk(clock, monkeypatch):
    return lambda provider=said: SignedInOwner(clock, monkeypatch, provider)


def is_free(row: UsageRecord) -> bool:
    return bool(row.flags & CACHED) and not row.cost_nusd


def test_a_kept_answer_is_given_for_nothing_and_has_its_row(open_desk):
    desk = open_desk()
    desk.keep(write_result(said()))
    result, outcome = desk.generate()
    assert result.vectors == [[1.0]] and desk.runs == []
    assert outcome.cached and outcome.origin == "f" * 32 and outcome.serving.model == "m-1"
    (row,) = desk.rows
    assert is_free(row) and (row.input, row.finish) == (3, "stop")


def test_a_missing_answer_is_generated_and_stored(open_desk):
    desk = open_desk()
    result, outcome = desk.generate()
    assert result.vectors == [[1.0]] and not outcome.cached and desk.rows == []
    assert desk.cache.kept[KEY].origin.mapping == "north/m" and desk.cache.unlocked == 1
    assert desk.generate()[1].cached and len(desk.runs) == 1


def test_identical_requests_at_once_make_one_call_and_one_pays(open_desk):
    desk = open_desk(slow)
    greenlets = [gevent.spawn(desk.generate) for _ in range(5)]
    answers = [one.get(timeout=60) for one in greenlets]
    assert [result.vectors for result, _ in answers] == [[[1.0]]] * 5 and len(desk.runs) == 1
    assert sorted(outcome.cached for _, outcome in answers) == [False] + [True] * 4
    assert len(desk.rows) == 4 and all(map(is_free, desk.rows))


def test_a_failed_shared_call_is_tried_again(open_desk):
    answers = [said]

    def first_fails():
        gevent.sleep(0.02)
        if len(desk.runs) == 1:
            raise UpstreamFailed("It failed.", upstream_status=500)
        return answers[0]()

    desk = open_desk(first_fails)
    first, second = gevent.spawn(desk.generate), gevent.spawn(desk.generate)
    with pytest.raises(UpstreamFailed):
        first.get(timeout=60)
    assert second.get(timeout=60)[0].vectors == [[1.0]] and len(desk.runs) == 2


def test_callers_without_access_to_the_provider_share_no_call_and_no_cached_response(open_desk):
    desk = open_desk(slow)
    first = gevent.spawn(desk.generate)
    second = gevent.spawn(desk.generate, denied=True)
    assert not first.get(timeout=60)[1].cached and not second.get(timeout=60)[1].cached
    assert len(desk.runs) == 2 and desk.rows == []
    assert not desk.generate(denied=True)[1].cached


def test_a_refused_request_leaves_nothing_that_others_wait_for(open_desk):
    desk = open_desk()
    desk.refusals = [OutOfCredits("None are left.")]
    with pytest.raises(OutOfCredits):
        desk.generate()
    assert desk.cache.unlocked == 1 and desk.generate()[0].vectors == [[1.0]]


def test_an_answer_that_another_worker_makes_is_waited_for(open_desk):
    desk = open_desk()
    desk.cache.elsewhere = True
    waiting = gevent.spawn(desk.generate)
    gevent.sleep(0.06)
    desk.keep(write_result(said()))
    assert waiting.get(timeout=60)[1].cached and desk.runs == []


def test_an_answer_that_was_stored_just_before_the_lock_was_free_is_given(open_desk, monkeypatch):
    desk = open_desk()

    def lock(key: str) -> bool:
        desk.keep(write_result(said()))
        return True

    monkeypatch.setattr(desk.cache, "lock", lock)
    assert desk.generate()[1].cached and desk.runs == [] and desk.cache.unlocked == 1


def test_followers_of_a_stream_get_it_as_it_comes(open_desk):
    desk = open_desk(text_batches)
    leading, _ = desk.stream()
    gevent.sleep(0.01)
    following, outcome = desk.stream()
    texts = [[event.text for batch in batches for event in batch[:1] if type(event) is TextDelta] for batches in
             (leading, following)]  # fmt: skip
    assert texts == [["a", "b"], ["a", "b"]] and len(desk.runs) == 1
    assert outcome.cached and outcome.serving.usage == USED and all(map(is_free, desk.rows))


def test_a_disconnection_from_a_shared_stream_is_recorded_and_does_not_end_it(open_desk):
    desk = open_desk(text_batches)
    leading, _ = desk.stream()
    gevent.sleep(0.01)
    following, _ = desk.stream()
    next(following)
    following.close()
    assert [row.finish for row in desk.rows] == [CLIENT_DISCONNECT]
    assert type(list(leading)[-1][-1]) is Finished and desk.runs[0].outcome.serving.finish == "stop"


def test_a_kept_stream_that_is_left_is_recorded_as_left(open_desk):
    desk = open_desk()
    desk.keep(write_batch([TextDelta("a")]), write_batch([Finished("stop", USED)]))
    batches, _ = desk.stream()
    assert next(batches) == [TextDelta("a")]
    batches.close()
    assert [row.finish for row in desk.rows] == [CLIENT_DISCONNECT]
    assert len(list(desk.stream()[0])) == 2 and desk.rows[-1].finish == "stop"
