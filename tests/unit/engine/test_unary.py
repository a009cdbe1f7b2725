"""Whole answers: the first provider that answers, and callers who do not wait for it."""

import gevent
import pytest
from gevent.event import Event
from support.engine_runs import Providers, make_run, target_at

from gateway.engine import unary
from gateway.errors import InvalidRequest, UpstreamFailed
from gateway.neutral.chat import ChatResult, Choice
from gateway.neutral.parts import Text
from gateway.neutral.usage import Usage
from gateway.runtime.disconnects import dismiss

NORTH, SOUTH = target_at("north"), target_at("south")
USED = Usage(input=3, output=2)
FAILED = UpstreamFailed("It failed.", upstream_status=500)


def said(text="Hello.", usage=USED, **more):
    return ChatResult((Choice((Text(text),), "stop"),), usage, **more)


def slow(seconds=0.05):
    gevent.sleep(seconds)
    return said()


def test_the_next_provider_answers_where_the_first_fails(clock):
    run = make_run(clock, Providers(north=FAILED, south=said(model="m-1")), NORTH, SOUTH)
    assert unary.answer(run).choices[0].parts == (Text("Hello."),)
    assert [attempt.succeeded for attempt in run.outcome.attempts] == [False, True]
    serving = run.outcome.serving
    assert (serving.model, serving.usage, serving.finish) == ("m-1", USED, "stop")


def test_warnings_are_those_of_who_answered(clock):
    run = make_run(clock, Providers(north=FAILED, south=said(warnings=("no seed",))), NORTH, SOUTH)
    unary.answer(run)
    assert run.outcome.warnings == ["no seed"]


def test_an_answer_without_usage_shows_its_size_for_an_estimate(clock):
    run = make_run(clock, Providers(north=said("Hello.", usage=None)), NORTH)
    unary.answer(run)
    assert run.outcome.serving.output_length == 6 and run.outcome.serving.usage is None


def test_an_answer_with_nothing_but_zeros_shows_its_size_too(clock):
    run = make_run(clock, Providers(north=said("Hello.", usage=Usage())), NORTH)
    unary.answer(run)
    assert run.outcome.serving.output_length == 6


def test_repeated_warnings_of_a_provider_are_shown_once(clock):
    run = make_run(clock, Providers(north=FAILED, south=FAILED), NORTH, target_at("north"), SOUTH)
    with pytest.raises(UpstreamFailed) as caught:
        unary.answer(run)
    message = "Tried: north answered 500: It failed (2 times); south answered 500: It failed."
    assert caught.value.message.endswith(message)


def test_the_callers_own_fault_is_reported_at_once(clock):
    run = make_run(clock, Providers(north=InvalidRequest("Bad.", upstream_status=400), south=said()), NORTH, SOUTH)
    with pytest.raises(InvalidRequest):
        unary.answer(run)
    assert len(run.outcome.attempts) == 1


def hang_up(run):
    caller = gevent.spawn(unary.answer, run)
    gevent.sleep(0.01)
    dismiss(caller)
    gevent.sleep(0)


def test_a_disconnection_is_settled_without_waiting(clock):
    run = make_run(clock, Providers(north=slow), NORTH)
    hang_up(run)
    gevent.sleep(0.01)
    assert run.outcome.serving.finish == "client_disconnect"
    assert "abandon" in run.settlement.call_names() and "keep" not in run.settlement.call_names()


def test_an_answer_that_goes_on_without_its_caller_is_billed_by_what_it_used(clock):
    run = make_run(clock, Providers(north=slow), NORTH, drain_s=5.0)
    hang_up(run)
    assert run.settlement.call_names()[-1] == "leave"  # the settlement stays open until the answer is there
    gevent.sleep(0.1)
    assert run.outcome.serving.usage.basis == "drained" and run.outcome.serving.usage.output == 2
    assert "abandon" in run.settlement.call_names() and run.reading_on.count == 0


def test_a_call_that_begins_as_its_caller_leaves_goes_on_too(clock):
    """The caller's greenlet was ended in its first wait after the call was sent: the provider billed the whole answer,
    and the row had the prompt alone."""
    run = make_run(clock, Providers(north=slow), NORTH, drain_s=5.0)
    admitted = Event()

    def serve():
        admitted.wait()
        unary.answer(run)

    caller = gevent.spawn(serve)
    gevent.sleep(0)
    admitted.set()  # wakes the greenlet before the disconnection reaches it
    dismiss(caller)
    gevent.sleep(0.1)
    assert run.outcome.serving.usage.basis == "drained" and run.outcome.serving.usage.output == 2
    assert run.reading_on.count == 0


def test_it_is_waited_for_no_longer_than_was_allowed(clock):
    run = make_run(clock, Providers(north=lambda: slow(30)), NORTH, drain_s=0.02)
    hang_up(run)
    gevent.sleep(0.06)
    assert "abandon" in run.settlement.call_names() and run.outcome.serving.usage is None
    assert run.reading_on.count == 0
