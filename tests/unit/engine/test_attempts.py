"""The error of a request that no provider answered."""

import pytest
from support.billing import attempt_at, request_of, target

from gateway.billing.outcome import Outcome
from gateway.engine.attempts import _final_error
from gateway.errors import (
    GatewayError,
    UpstreamFailed,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRefused,
    UpstreamTimeout,
)

BUSY = UpstreamOverloaded("busy", retry_after=7)
LIMITED = UpstreamRateLimited("slow down", retry_after=3)


def final(*errors: GatewayError) -> GatewayError:
    attempts = [attempt_at(target(), number, error=error) for number, error in enumerate(errors)]
    return _final_error(Outcome(request_of(), attempts=attempts), errors[-1], [])


@pytest.mark.parametrize(
    ("errors", "kind", "status", "retry_after"),
    [
        ((LIMITED, LIMITED), UpstreamRateLimited, 429, 3),
        ((BUSY, BUSY), UpstreamOverloaded, 529, 7),
        ((UpstreamTimeout("late"), UpstreamTimeout("late")), UpstreamTimeout, 504, None),
        ((LIMITED, BUSY), UpstreamFailed, 502, None),
        ((UpstreamRefused("no", upstream_status=401),) * 2, UpstreamFailed, 502, None),
    ],
)
def test_clients_get_the_error_that_all_providers_share(
    errors: tuple[GatewayError, ...], kind: type[GatewayError], status: int, retry_after: float | None
) -> None:
    error = final(*errors)
    assert type(error) is kind and (error.status, error.retry_after) == (status, retry_after)
