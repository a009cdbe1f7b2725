"""Non-streamed answers: one upstream call after the other until one returns a result."""

from functools import partial
from typing import Any

from gateway.billing.outcome import Attempt
from gateway.engine import split_calls
from gateway.engine.run import Run
from gateway.errors import GatewayError
from gateway.neutral.chat import ChatRequest
from gateway.neutral.operations import OPERATIONS
from gateway.neutral.request import Result
from gateway.runtime.disconnects import current
from gateway.runtime.threads import compute_if

CHAT = ChatRequest.operation


def answer(run: Run) -> Any:
    """The result of the first target that answers, settled. Raises the error for the caller."""
    target = run.walk.first()
    while True:
        attempt = run.begin(target)
        try:
            result = _send(run, attempt)
        except GatewayError as error:
            target = run.failed(attempt, error)
            continue
        describe(attempt, result)
        if result.warnings:
            run.outcome.warnings.extend(result.warnings)
        run.finished(attempt)
        run.learn_time(attempt)
        return result


def describe(attempt: Attempt, result: Result) -> None:
    """Record on the attempt what its result says."""
    attempt.model = result.model
    attempt.upstream_id = result.upstream_id
    attempt.usage = result.usage
    attempt.service_tier = result.service_tier
    attempt.finish = result.finish
    usage = result.usage
    # What the provider left out is estimated; so is the part of text in a sum of text and images.
    if usage is None or not (usage.input and usage.output) or usage.images:
        attempt.output_length = compute_if(result.large, result.text_length)


def _send(run: Run, attempt: Attempt) -> Any:
    """One upstream call. The greenlet of a caller who disconnected is killed here, at once or after the time for which
    the answer is waited for; then the attempt is settled by what is known."""
    target = attempt.target
    until = run.patience()
    # The last provider is waited for to the end.
    if until < run.deadline:
        gives_up = partial(run.gives_up, attempt)
    else:
        gives_up = None
    greenlet = current()
    greenlet.paid_work = run
    try:
        choices = run.choices_a_call(target)
        mapping = target.mapping
        limited = choices or ((mapping.max_inputs or mapping.max_n) and run.request.operation != CHAT)
        send: Any = run.upstreams.send
        if limited and OPERATIONS[run.request.operation].split:
            send = partial(split_calls.send, run.upstreams, choices=choices)
        return send(run.request_for(target), target, until, run.listener(target), gives_up)
    except Exception:
        raise
    except BaseException:
        run.hung_up(attempt)
        raise
    finally:
        greenlet.paid_work = None
