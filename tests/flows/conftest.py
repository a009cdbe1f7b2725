from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.openai import FakeOpenAI
from openai import OpenAI
from support.gateways import GatewayProcess, LocalGateway, local_gateway
from support.shared import SharedGateway, Tenant

from gateway.settings import Settings


@pytest.fixture(scope="module")
def shared_upstream() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as fake:
        yield fake


@pytest.fixture
def upstream(shared_upstream: FakeOpenAI) -> FakeOpenAI:
    """The strict fake, with no calls and no script yet."""
    shared_upstream.forget()
    return shared_upstream


def environment_of(upstream: FakeOpenAI) -> dict[str, str]:
    """The provider `openai` is the strict fake."""
    return {
        "LLM_OPENAI_API_KEY": "sk-upstream",
        "LLM_OPENAI_BASE_URL": upstream.url,
        "LLM_OPENAI_USE_RESPONSES_API": "false",  # it speaks chat completions alone
    }


@pytest.fixture(scope="module")
def shared_gateway(module_settings: Callable[..., Settings], shared_upstream: FakeOpenAI) -> Iterator[SharedGateway]:
    """The gateway of the module. One with other settings: override this fixture, with the same scope."""
    with local_gateway(module_settings, **environment_of(shared_upstream)) as running:
        shared = SharedGateway(running)
        yield shared
        shared.check()


@pytest.fixture
def gateway(shared_gateway: SharedGateway, upstream: FakeOpenAI, request: pytest.FixtureRequest) -> Tenant:
    """The module's gateway as a fresh organization with credits sees it."""
    return shared_gateway.tenant(request.node.nodeid)


@pytest.fixture
def own_gateway(settings: Callable[..., Settings], upstream: FakeOpenAI) -> Iterator[LocalGateway]:
    """A gateway of this test's own, to be changed, drained, or looked at as a whole."""
    with local_gateway(settings, **environment_of(upstream)) as running:
        yield running


@pytest.fixture
def client(gateway: LocalGateway) -> OpenAI:
    return OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Callable[..., GatewayProcess]]:
    """A factory of gateways under gunicorn: process(workers=4, REDIS_URL=…)."""
    started: list[GatewayProcess] = []

    def start(workers: int = 1, **environment: str) -> GatewayProcess:
        started.append(GatewayProcess(tmp_path / f"data{len(started)}", workers, **environment))
        return started[-1].start()

    yield start
    for one in started:
        one.stop()
