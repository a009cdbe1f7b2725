"""Non-streamed answers: upstream calls in sequence until one returns a result."""

from functools import partial
from typing import Any

from gateway.billing.outcome import Attempt
from gateway.engine import split_calls
from gateway.engine.empty_answers import meant_end
from gateway.engine.run import Run
from gateway.errors import GatewayError
from gateway.neutral.chat import ChatRequest, ChatResult, Choice
from gateway.neutral.operations import OPERATIONS
from gateway.neutral.request import Result
from gateway.runtime.disconnects import current
from gateway.runtime.threads import compute_if

CHAT = ChatRequest.operation


def answer(run: Run) -> Any:
    """Return the settled result of the first target that answers. Raises the error for the caller."""
    target = run.walk.first()
    while True:
        attempt = run.begin(target)
        try:
            result = _send(run, attempt)
        except GatewayError as error:
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
    usage = result.usage
    # The length serves to estimate usage that the provider omitted, and the share of text in a sum with images.
    if usage is None or not (usage.input and usage.output) or usage.images:
        attempt.output_length = compute_if(result.large, result.text_length)


def _send(run: Run, attempt: Attempt) -> Any:
    """Make one upstream call.

    After a disconnect the caller's greenlet is killed in here, at once or when the time to read on has passed; then the
    attempt is settled with what is known.
    """
    target = attempt.target
    until = run.time_limits()
    # The last provider gets all the time that is left.
    should_abandon = partial(run.should_abandon, attempt) if until < run.deadline else None
    greenlet = current()
    greenlet.paid_work = run
    try:
        choices = run.choices_a_call(target)
        mapping = target.mapping
        limited = choices or ((mapping.max_inputs or mapping.max_n) and run.request.operation != CHAT)
        send: Any = run.upstreams.send
        if limited and OPERATIONS[run.request.operation].split:
            send = partial(split_calls.send, run.upstreams, choices=choices)
        return send(run.request_for(target), target, until, run.listener(target), should_abandon)
    except Exception:
        raise
    except BaseException:
        run.hung_up(attempt)
        raise
    finally:
        greenlet.paid_work = None
