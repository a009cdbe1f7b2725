from collections.abc import Callable, Iterator

import pytest
from fakes.openai import FakeOpenAI
from support.drilling import Report

from gateway.configuration.settings import Settings


@pytest.fixture(scope="session")
def report() -> Iterator[Report]:
    """Collects the table of success rates and added latency; printed when all drills are through."""
    made = Report()
    yield made
    print(made)


@pytest.fixture
def healthy() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as fake:
        yield fake


@pytest.fixture
def make_settings(settings: Callable[..., Settings]) -> Callable[..., Settings]:
    """Settings with the patience of a drill: a provider that says nothing for half a second has failed."""
    return lambda **more: settings(GATEWAY_TIMEOUTS_SILENCE_S="0.5", GATEWAY_TIMEOUTS_CONNECT_S="0.5", **more)
