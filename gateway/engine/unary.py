"""Non-streamed answers: one upstream call after the other until one returns a result."""

from functools import partial
from typing import Any

from msgspec import structs

from gateway.billing.outcome import Attempt
from gateway.engine import split_calls
from gateway.engine.run import Run
from gateway.errors import GatewayError
from gateway.neutral.request import Result
from gateway.operations import OPERATIONS
from gateway.threads import Job, compute_if, spawn


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
    attempt.model, attempt.upstream_id = result.model, result.upstream_id
    attempt.usage, attempt.service_tier = result.usage, result.service_tier
    attempt.finish = result.finish
    usage = result.usage
    # What the provider left out is estimated; so is the part of text in a sum of text and images.
    if usage is None or not (usage.input and usage.output) or usage.images:
        attempt.output_length = compute_if(result.large, result.text_length)


def _send(run: Run, attempt: Attempt) -> Any:
    """One upstream call. A disconnect kills this greenlet: then the attempt is settled by the policy."""
    target = attempt.target
    drains, until, listener = run.drains(target), run.patience(), run.listener(target)
    # The last provider is waited for to the end.
    gives_up = partial(run.gives_up, attempt) if until < run.deadline else None
    try:
        limited = (target.mapping.max_inputs or target.mapping.max_n) and OPERATIONS[run.request.operation].split
        send = partial(split_calls.send, run.upstreams) if limited else run.upstreams.send
        if not drains:
            return send(run.request_for(target), target, until, listener, gives_up)
        job = Job(send, run.request_for(target), target, until, listener, gives_up)
        return job.result()
    except Exception:
        raise
    except BaseException:
        if drains:
            run.settlement.keep()
            spawn(_drain, run, attempt, job)
        else:
            run.hung_up(attempt)
        raise


def _drain(run: Run, attempt: Attempt, job: Job[Any]) -> None:
    try:
        result = job.result(run.longest_drain_s())
        describe(attempt, result)
        attempt.usage = result.usage and structs.replace(result.usage, basis="drained")
    except (GatewayError, TimeoutError):
        job.stop()  # what is known until here is what can be billed
    finally:
        run.hung_up(attempt)
        run.settlement.close()
