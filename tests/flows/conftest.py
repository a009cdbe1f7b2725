from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.openai import FakeOpenAI
from openai import OpenAI
from support.gateways import GatewayProcess, LocalGateway, local_gateway

from gateway.settings import Settings


@pytest.fixture
def upstream() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as fake:
        yield fake


@pytest.fixture
def gateway(settings: Callable[..., Settings], upstream: FakeOpenAI) -> Iterator[LocalGateway]:
    """A gateway whose provider `openai` is the strict fake."""
    environment = {
        "LLM_OPENAI_API_KEY": "sk-upstream",
        "LLM_OPENAI_BASE_URL": upstream.url,
        "LLM_OPENAI_USE_RESPONSES_API": "false",  # it speaks chat completions alone
    }
    with local_gateway(settings, **environment) as running:
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
