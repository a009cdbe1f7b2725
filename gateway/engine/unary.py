"""Non-streamed answers: upstream calls in sequence until one returns a result."""

from functools import partial
from typing import Any

from gateway.billing.context import Attempt
from gateway.engine import split_calls
from gateway.engine.hedging import TICK_S, Race, RacingAttempt, begin_hedge, may_hedge, should_hedge
from gateway.engine.run import Run, meant_end
from gateway.errors import GatewayError
from gateway.neutral.chat import ChatRequest, ChatResult, Choice
from gateway.neutral.operations import OPERATIONS
from gateway.neutral.request import Result
from gateway.providers.protocol import Target
from gateway.runtime.disconnects import current
from gateway.runtime.threads import compute_if

CHAT = ChatRequest.operation


def answer(run: Run) -> Any:
    """Return the settled result of the first target that answers. Raises the error for the caller."""
    target = run.walk.first()
    while True:
        attempt = run.begin(target)
        try:
            if run.context.caller.settings and may_hedge(run):
                result = _race(run, attempt)
                attempt = run.outcome.serving
            else:
                result = _send(run, attempt)
        except GatewayError as error:
            attempt = run.outcome.serving
            finish = meant_end(error, run.request)
            if finish is None:
                target = run.failed(attempt, error)
                continue
            result = ChatResult((Choice((), finish),), getattr(error, "usage", None))
        describe(attempt, result)
        if result.warnings:
            run.outcome.warnings.extend(result.warnings)
        run.finished(attempt)
        run.learn_time(attempt)
        return result


def describe(attempt: Attempt, result: Result) -> None:
    """Copy the model, usage and end of a result to its attempt."""
    attempt.model = result.model
    attempt.upstream_id = result.upstream_id
    attempt.usage = result.usage
    attempt.service_tier = result.service_tier
    attempt.finish = result.finish
    attempt.given = getattr(result, "given", ())
    usage = result.usage
    # The length serves to estimate usage that the provider omitted, and the share of text in a sum with images.
    if usage is None or not (usage.input and usage.output) or usage.images:
        attempt.output_length = compute_if(result.large, result.text_length)


def _send(run: Run, attempt: Attempt) -> Any:
    """Make one upstream call.

    After a disconnect the caller's greenlet is killed in here, at once or when the time to read on has passed; then the
    attempt is settled with what is known.
    """
    greenlet = current()
    greenlet.paid_work = run
    try:
        return _call(run, attempt)
    except Exception:
        raise
    except BaseException:
        run.hung_up(attempt)
        raise
    finally:
        greenlet.paid_work = None


def _call(run: Run, attempt: Attempt) -> Any:
    target = attempt.target
    until = run.time_limits()
    # The last provider gets all the time that is left.
    should_abandon = partial(run.should_abandon, attempt) if until < run.deadline else None
    mapping = target.mapping
    send: Any = run.upstreams.send
    if run.route_plan.adapts or mapping.max_inputs or mapping.max_n:
        send = _sender_of(run, target)
    return send(run.request_for(target), target, until, run.listener(attempt), should_abandon)


def _sender_of(run: Run, target: Target) -> Any:
    """Return the function that sends the request: in several calls where one takes too few inputs, or gives too few
    answers."""
    operation = run.request.operation
    choices = run.choices_a_call(target)
    limited = choices or (operation != CHAT and (target.mapping.max_inputs or target.mapping.max_n))
    if limited and OPERATIONS[operation].split:
        return partial(split_calls.send, run.upstreams, choices=choices)
    return run.upstreams.send


def _race(run: Run, attempt: Attempt) -> Any:
    """Make an upstream call and, while it is silent for long, another one at the next provider; return the result that
    is complete first. Raises the error of the last call."""
    greenlet = current()
    greenlet.paid_work = run
    race = Race(run, RacingAttempt(attempt, run.settlement, run.outcome.warnings))
    race.start(race.live[0], _call_in_race)
    try:
        return _first_result(race, attempt, greenlet)
    except GatewayError:
        raise
    except Exception:
        race.stop()
        raise
    except BaseException:
        race.left()
        raise
    finally:
        greenlet.paid_work = None


def _first_result(race: Race, attempt: Attempt, greenlet: Any) -> Any:
    run = race.run
    while True:
        arrival = race.next(None if run.hedged else TICK_S)
        if arrival is None:
            if should_hedge(run, attempt) and (hedge := begin_hedge(run)) is not None:
                greenlet.paid_work = race
                race.add(hedge)
                race.start(hedge, _call_in_race)
            continue
        lane, result = arrival
        if not isinstance(result, GatewayError):
            race.won(lane)
            return result
        if meant_end(result, run.request) is not None:
            race.won(lane)
            raise result
        race.failed(lane, result)


def _call_in_race(race: Race, lane: RacingAttempt) -> None:
    result = _call(race.run, lane.attempt)
    describe(lane.attempt, result)
    lane.whole = True
    race.put(lane, result)
