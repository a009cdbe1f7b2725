"""Splits one request into several upstream calls when its provider allows fewer inputs, images or answers per call.

Together the calls are one attempt, with one reservation and one settlement for the sum of their usage; the usage of a
call that reports none is estimated. When one call fails the others are cancelled, the usage of the successful ones is
paid, and the next target starts from the beginning, since vectors of two providers must never be mixed.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import structs

from gateway.billing.estimates import complete
from gateway.billing.unit_estimates import estimate
from gateway.errors import GatewayError
from gateway.neutral.operations import OPERATIONS
from gateway.neutral.request import Request
from gateway.neutral.usage import Usage, added
from gateway.providers.protocol import Target
from gateway.providers.upstream import Upstreams
from gateway.providers.upstream_calls import CallListener
from gateway.runtime.threads import Job, compute_if

CONCURRENT_CALLS = 4
MAX_TOKENS_KEY = "max_batch_tokens"  # in a mapping's `extra`: the tokens of all inputs that one call accepts


def send(
    upstreams: Upstreams,
    request: Request,
    target: Target,
    deadline: float,
    listener: CallListener | None,
    should_abandon: Callable[[], bool] | None = None,
    choices: int = 0,
) -> Any:
    """Send like Upstreams.send, in as many calls as the mapping needs, concurrently unless there is a listener.

    `choices` is how many answers of a chat one call gives (0: as many as are requested).
    """
    parts = parts_of(request, target, choices)
    join = OPERATIONS[request.operation].join
    if join is None or len(parts) < 2:
        return upstreams.send(request, target, deadline, listener, should_abandon)
    done: list[Any] = []
    running: deque[Job[Any]] = deque()
    try:
        for part in parts:
            running.append(Job(_send, upstreams, part, target, deadline, listener, should_abandon))
            if len(running) >= (CONCURRENT_CALLS if listener is None else 1):
                done.append(running.popleft().result())
        while running:
            done.append(running.popleft().result())
    except GatewayError as error:
        done += [result for job in running if (result := job.outcome()) is not None]
        used = [result.usage for result in done if result.usage is not None]
        if used and error.spent is None:
            if choices:
                error.spent = structs.replace(added(used), calls=len(used))
            else:
                error.spent = added(used)
        raise
    finally:
        for job in running:
            job.stop()
    return compute_if(request.large, join, done)


def _send(
    upstreams: Upstreams,
    part: Request,
    target: Target,
    deadline: float,
    listener: CallListener | None,
    should_abandon: Callable[[], bool] | None,
) -> Any:
    """Make one of the calls. Its usage is completed here, because the sum does not show which call reported none."""
    result = upstreams.send(part, target, deadline, listener, should_abandon)
    result.usage = estimated_part(part, result.usage, target, result.text_length())
    return result


def estimated_part(part: Request, usage: Usage | None, target: Target, length: int) -> Usage:
    """Return the usage of one of the calls, estimated where the provider has not reported any."""
    needs = part.requirements
    mapping = target.mapping
    estimated = estimate(needs.units, mapping, needs.prompt_bytes, length, needs.likely_media_tokens)
    return complete(usage, estimated, needs.units, mapping, length)


def parts_of(request: Request, target: Target, choices: int) -> list[Any]:
    """Return the requests of the calls that a request takes at a target; `choices` as for `send`."""
    operation = OPERATIONS[request.operation]
    mapping = target.mapping
    split = operation.split
    maximum = getattr(mapping, operation.limit)
    if split is not None and choices:
        return _list(split, request, choices, 0)
    if split is None or not maximum:
        return [request]
    most_tokens = mapping.extra.get(MAX_TOKENS_KEY, 0)
    # A token is at least one byte.
    if operation.item_count(request) <= maximum and (
        not most_tokens or request.requirements.prompt_bytes <= most_tokens
    ):
        return [request]
    return compute_if(request.large, _list, split, request, maximum, most_tokens)


def _list(split: Callable[[Any, int, int], Iterator[Any]], *arguments: Any) -> list[Any]:
    return list(split(*arguments))
