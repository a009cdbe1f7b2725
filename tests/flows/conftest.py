from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.openai import FakeOpenAI
from openai import OpenAI
from support.chromium import Chromium
from support.gateways import GatewayProcess, LocalGateway, local_gateway
from support.postgres import Databases
from support.shared import ModuleShare, Share, Tenant

from gateway.configuration.settings import Settings


@pytest.fixture(scope="module")
def module_share(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleShare]:
    shared = ModuleShare(tmp_path_factory.mktemp)
    yield shared
    shared.close()


@pytest.fixture
def share(module_share: ModuleShare, request: pytest.FixtureRequest) -> Share:
    """Gateways and fakes that are started once for the module: share.gateway({…}), share.fake(FakeOpenAI)."""
    return Share(module_share, request.node.nodeid)


@pytest.fixture
def shared_postgresql_url(share: Share, postgres_databases: Databases) -> str:
    """The one migrated PostgreSQL database of the module's shared gateways."""
    return share.database(postgres_databases)


@pytest.fixture
def upstream(share: Share) -> FakeOpenAI:
    """The strict fake, with no calls and no script yet."""
    return share.fake(FakeOpenAI)


@pytest.fixture
def upstream_environment(upstream: FakeOpenAI) -> dict[str, str]:
    """The provider `openai` is the strict fake."""
    return {
        "LLM_OPENAI_API_KEY": "sk-upstream",
        "LLM_OPENAI_BASE_URL": upstream.url,
        "LLM_OPENAI_USE_RESPONSES_API": "false",  # it speaks chat completions alone
    }


@pytest.fixture
def gateway(share: Share, upstream_environment: dict[str, str]) -> Tenant:
    """The module's gateway as a fresh organization with credits sees it."""
    return share.gateway(upstream_environment)


@pytest.fixture
def own_gateway(settings: Callable[..., Settings], upstream_environment: dict[str, str]) -> Iterator[LocalGateway]:
    """A gateway of this test's own, to be changed, drained, or looked at as a whole."""
    with local_gateway(settings, **upstream_environment) as running:
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
        one.discard()


@pytest.fixture
def sandbox_gateway(settings: Callable[..., Settings]) -> Iterator[LocalGateway]:
    """A gateway without provider keys, as its first start leaves it."""
    with local_gateway(settings) as running:
        yield running


@pytest.fixture
def page_script() -> str:
    """The script that the browser runs before those of a page; modules replace it."""
    return ""


@pytest.fixture
def browser(page_script: str) -> Iterator[Chromium]:
    """A browser with a profile for this test."""
    made = Chromium()
    if page_script:
        made.ask("Page.enable")
        made.ask("Page.addScriptToEvaluateOnNewDocument", source=page_script)
    yield made
    made.close()
