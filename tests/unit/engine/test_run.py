"""The steps of a request in progress: the next target, its time limit, and the accounts."""

import pytest
from msgspec.structs import replace
from support.engine_runs import DEADLINE_S, TIMEOUTS, Providers, make_run, target_at

from gateway.engine import run as run_module
from gateway.engine.run import NEARLY_DONE_S
from gateway.errors import (
    GatewayError,
    NotSupported,
    SpendingLimitReached,
    UpstreamFailed,
    UpstreamTimeout,
)
from gateway.neutral.embeddings import EmbeddingsInput, EmbeddingsRequest
from gateway.neutral.request import Requirements
from gateway.neutral.usage import Usage
from gateway.routing.provider_health import SILENCE_FORGOTTEN_S, Health
from gateway.runtime.disconnects import ReadingOn

NORTH, SOUTH, EAST = target_at("north"), target_at("south"), target_at("east")
FAILED = UpstreamFailed("It failed.", upstream_status=500)


@pytest.fixture
def run(clock):
    clock.freeze()
    return make_run(clock, Providers(), NORTH, SOUTH)


def test_an_attempt_may_take_half_of_the_time_while_another_provider_is_left_and_then_all_of_it(run, clock):
    now = clock.monotonic()
    assert run.time_limits() == now + DEADLINE_S / 2
    run.walk.after(FAILED)
    assert run.time_limits() == run.deadline == now + DEADLINE_S


def test_a_silent_stream_is_left_once_for_a_provider_that_waits_and_is_not_cooling_down(run, clock):
    attempt = run.begin(run.walk.first())
    assert not run.should_abandon(attempt)
    clock.advance(TIMEOUTS.first_byte_s)
    run.settlement.shut = {"south"}
    assert not run.should_abandon(attempt)
    run.settlement.shut = set()
    assert run.should_abandon(attempt) and not run.should_abandon(attempt)
    assert [group[0].provider.id for group in run.walk.groups] == ["north", "south", "north"]


def test_a_model_that_reasons_may_be_silent_for_longer(clock):
    clock.freeze()
    run = make_run(clock, Providers(), target_at("north", reasoning=True), SOUTH)
    attempt = run.begin(run.walk.first())
    clock.advance(TIMEOUTS.first_byte_reasoning_s - 1)
    assert not run.should_abandon(attempt)
    clock.advance(1.5)  # an exact sum would depend on the rounding of the clock
    assert run.should_abandon(attempt)


def test_a_plain_answer_of_a_model_that_reasons_is_left_when_streams_show_that_its_provider_hangs(clock):
    clock.freeze()
    run = make_run(clock, Providers(), target_at("north", reasoning=True), SOUTH)
    health = Health(clock)
    target = run.walk.first()
    run.planner.are_others_silent = lambda target: health.is_silent(target.mapping, target.credential)
    attempt = run.begin(target)
    clock.advance(TIMEOUTS.first_byte_s)
    assert not run.should_abandon(attempt)
    for request in "abc":
        health.note_silence(target.mapping, target.credential, request)
    assert run.should_abandon(attempt)


def test_silence_of_others_counts_for_seconds_and_not_for_a_plain_answer_that_has_just_begun(clock):
    clock.freeze()
    run = make_run(clock, Providers(), target_at("north", reasoning=True), SOUTH)
    health = Health(clock)
    target = run.walk.first()
    run.planner.are_others_silent = lambda target: health.is_silent(target.mapping, target.credential)
    for request in "abc":
        health.note_silence(target.mapping, target.credential, request)
    attempt = run.begin(target)
    clock.advance(TIMEOUTS.first_byte_s / 3)
    assert not run.should_abandon(attempt)
    clock.advance(SILENCE_FORGOTTEN_S)
    assert not run.should_abandon(attempt)


def test_a_plain_answer_that_takes_as_long_elsewhere_counts_where_it_was_not_waited_for(run, clock):
    """Otherwise a model with ever longer answers would be abandoned at each of them, and paid twice."""
    attempt = run.begin(run.walk.first())
    clock.advance(TIMEOUTS.first_byte_s)
    assert run.should_abandon(attempt)
    following = run.failed(attempt, UpstreamTimeout("mute"))
    again = run.begin(following)
    clock.advance(TIMEOUTS.first_byte_s - 1)
    again.ended = clock.monotonic()
    run.learn_time(again)
    clock.advance(2)
    again.ended = clock.monotonic()
    run.learn_time(again)
    learned = [target.provider.id for name, target in run.planner.calls if name == "answered"]
    assert learned == ["south", "south", "north"]


def test_the_callers_budget_caps_the_requested_output(run):
    run.settlement.output_cap = 77
    assert run.begin(run.walk.first()).target.output_cap == 77


def test_a_provider_key_that_may_not_spend_is_passed_over_and_counts_as_no_attempt(clock):
    limited = SpendingLimitReached("spent")
    run = make_run(clock, Providers(), target_at("north", bounded=True), SOUTH)
    run.settlement.broke = {"north": limited}
    assert run.begin(run.walk.first()).target.provider.id == "south"
    assert [attempt.number for attempt in run.outcome.attempts] == [0]
    assert [one.error for one in run.passed] == [limited]


def test_its_limit_is_reported_when_no_other_key_is_left(clock, monkeypatch):
    monkeypatch.setattr(run_module, "leave_out", lambda plan, passed: [one.credential.ident for one in passed])
    run = make_run(clock, Providers(), target_at("north", bounded=True))
    run.settlement.broke = {"north": SpendingLimitReached("spent")}
    with pytest.raises(SpendingLimitReached, match="spent"):
        run.begin(run.walk.first())
    assert run.outcome.attempts == [] and run.settlement.calls == [("decision", ["north"])]


def test_a_failed_attempt_is_in_the_books_before_the_next_begins(run):
    attempt = run.begin(run.walk.first())
    assert run.failed(attempt, FAILED).provider.id == "south"
    assert run.settlement.call_names() == ["begin", "begun", "failed", "planner failed"]
    assert (attempt.finish, attempt.status, attempt.error) == ("error", 500, FAILED) and attempt.ended


def test_the_cost_of_a_failure_is_on_its_attempt(run):
    attempt, spent = run.begin(run.walk.first()), Usage(input=7)
    error = UpstreamFailed("It failed.")
    error.spent = spent
    run.failed(attempt, error)
    assert attempt.usage == spent


def test_no_other_provider_is_called_when_nothing_is_left_after_a_billed_failure(run):
    run.settlement.short = SpendingLimitReached("spent")
    with pytest.raises(SpendingLimitReached):
        run.failed(run.begin(run.walk.first()), FAILED)
    assert run.settlement.call_names()[-1] == "decision"


def test_a_target_that_cannot_carry_the_request_counts_as_no_attempt(run):
    attempt = run.begin(run.walk.first())
    following = run.failed(attempt, NotSupported("No images."))
    assert following.provider.id == "south" and run.outcome.attempts == []
    assert run.settlement.call_names() == ["begin", "begun", "unused"]


def test_warnings_of_a_provider_that_failed_are_dropped(run):
    attempt = run.begin(run.walk.first())
    run.outcome.warnings.append("north has no temperature")
    run.failed(attempt, FAILED)
    assert run.outcome.warnings == []


def test_nothing_is_sent_to_a_place_where_nothing_answers(clock):
    run = make_run(clock, Providers(), NORTH, SOUTH, EAST)
    run.settlement.shut = {"south"}
    assert run.failed(run.begin(run.walk.first()), FAILED).provider.id == "east"


@pytest.mark.parametrize("late", [False, True])
def test_the_last_error_is_raised_without_further_candidates_or_time(run, clock, late):
    attempt = run.begin(run.walk.first())
    if late:
        clock.advance(DEADLINE_S)
    else:
        attempt = run.begin(run.failed(attempt, FAILED))
    with pytest.raises(GatewayError) as raised:
        run.failed(attempt, UpstreamTimeout("late") if late else FAILED)
    assert isinstance(raised.value, UpstreamTimeout if late else UpstreamFailed)
    assert run.settlement.call_names()[-1] == "decision"


def test_a_good_end_is_settled_with_its_decision_before_routing_records_it(run):
    attempt = run.begin(run.walk.first())
    run.finished(attempt)
    assert run.settlement.call_names()[2:] == ["decision", "settle", "succeeded", "served"]
    assert attempt.status == 200 and attempt.ended


def test_an_unsettled_answer_is_not_counted_as_a_success(run):
    run.settlement.refuse = UpstreamFailed("no store")
    with pytest.raises(UpstreamFailed):
        run.finished(run.begin(run.walk.first()))
    assert "succeeded" not in run.settlement.call_names()


def test_a_hang_up_is_not_counted_as_a_failure(run):
    attempt = run.begin(run.walk.first())
    run.hung_up(attempt)
    assert (attempt.finish, attempt.status) == ("client_disconnect", 499)
    assert run.settlement.call_names()[2:] == ["decision", "abandon", "abandoned"]


@pytest.mark.parametrize(
    ("streams", "cancellation", "plain_cancellation", "has_content", "expected_s"),
    [
        (True, False, False, False, 60.0),  # the provider makes and bills all of it
        (True, False, False, True, 60.0),
        (True, True, False, True, NEARLY_DONE_S),  # billed until it is cancelled
        (True, True, False, False, 0.0),
        (False, True, False, False, 60.0),
        (False, True, True, False, 0.0),
    ],
)
def test_an_answer_is_read_on_where_its_provider_bills_it_all_the_same(
    clock, streams, cancellation, plain_cancellation, has_content, expected_s
):
    target = target_at("north", cancellation=cancellation, plain_cancellation=plain_cancellation)
    needs = Requirements(stream=streams, max_tokens=9)
    request = EmbeddingsRequest("m", needs, lambda: EmbeddingsInput(("Hello",)))
    run = make_run(clock, Providers(), target, drain_s=60.0, request=request)
    attempt = run.begin(run.walk.first())
    attempt.first_at = 1.0 if has_content else 0.0
    assert run.read_on_s(attempt) == expected_s
    run.settings = replace(run.settings, drain_s=0.0)
    assert run.read_on_s(attempt) == 0.0


def test_no_other_target_is_tried_for_a_caller_who_left(clock):
    run = make_run(clock, Providers(), NORTH, target_at("south"), drain_s=60.0)
    attempt = run.begin(run.walk.first())
    assert run.after_disconnect() == 60.0 and run.reading_on.count == 1
    with pytest.raises(UpstreamFailed):
        run.failed(attempt, UpstreamFailed("It broke.", upstream_status=500))
    assert run.reading_on.count == 0 and len(run.outcome.attempts) == 1


def test_a_worker_reads_on_a_limited_number_of_answers(clock):
    few = ReadingOn(maximum=3, max_of_one=2)
    assert [few.enter("one") for _ in range(3)] == [True, True, False]
    assert [few.enter("two") for _ in range(2)] == [True, False]
    run = make_run(clock, Providers(), NORTH, drain_s=60.0, reading_on=few)
    run.begin(run.walk.first())
    assert run.after_disconnect() == 0.0 and not run.caller_gone
    few.leave("one")
    assert run.after_disconnect() == 60.0
