import pytest

from gateway.catalogue.entries import Mapping
from gateway.errors import UpstreamFailed
from gateway.routing.provider_health import Health, read_history
from gateway.routing.sliding_window import MINUTES


@pytest.fixture
def health(clock) -> Health:
    clock.freeze()
    clock.advance(60.01 - clock.monotonic() % 60)  # a minute begins
    return Health(clock)


def test_the_minutes_of_a_provider_sum_up_its_models(health: Health, clock) -> None:
    first, second = (Mapping("acme", name, name) for name in ("small", "large"))
    health.sample(first, None, ttft_ms=200, tokens=50, duration_ms=1000)
    clock.advance(60)
    health.sample(second, None, ttft_ms=400)
    health.sample(second, None, error=UpstreamFailed("it failed", upstream_status=500))
    history = read_history(health)
    assert set(history) == {"acme"} and len(history["acme"]) == MINUTES
    before, last = history["acme"][-2:]
    assert (before.succeeded, before.failed, before.wait_ms, before.tokens) == (1, 0, 200, 50)
    assert (last.succeeded, last.failed, last.wait_ms) == (1, 1, 400)
    assert sum(one.succeeded for one in history["acme"][:-2]) == 0
    clock.advance(60 * MINUTES)
    assert sum(one.succeeded + one.failed for one in read_history(health)["acme"]) == 0
