import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.gateways import LocalGateway, local_gateway
from support.management import PASSWORD, Person, Tenants

from gateway.configuration import settings as settings_module
from gateway.configuration.settings import Settings


def load(data: Path, **environment: str) -> Settings:
    base = {"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": str(data), "GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD}
    return settings_module.load(base | environment)


@pytest.fixture(scope="session")
def make_tenants(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """A factory of gateways without any users yet, with these variables."""

    def make(**environment: str) -> Any:
        data = tmp_path_factory.mktemp("data")
        return local_gateway(lambda **more: load(data, **environment, **more))

    return make


@dataclass(frozen=True)
class Settled:
    """The data directory of a closed gateway with its people in it, to be copied, and its first key."""

    data: Path
    key: str
    people: dict[str, Person]


@pytest.fixture(scope="session")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Settled:
    data = tmp_path_factory.mktemp("settled")
    with local_gateway(lambda **more: load(data, **more)) as gateway:
        people = Tenants(gateway).people
    return Settled(data, gateway.key, people)


@pytest.fixture(scope="session")
def open_tenants(
    settled: Settled, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., AbstractContextManager[Tenants]]:
    """A factory of tenants of their own: open_tenants(), or open_tenants(template) with a copy of other data."""

    @contextmanager
    def make(template: Settled = settled) -> Iterator[Tenants]:
        data = tmp_path_factory.mktemp("data") / "data"
        shutil.copytree(template.data, data)
        gateway = LocalGateway(load(data, GATEWAY_BOOTSTRAP_API_KEY=template.key), template.key)
        try:
            yield Tenants(gateway, template.people)
        finally:
            gateway.close()

    return make


@pytest.fixture(scope="module")
def module_tenants(open_tenants: Callable[[], AbstractContextManager[Tenants]]) -> Iterator[Tenants]:
    with open_tenants() as made:
        yield made


@pytest.fixture
def shared_tenants(module_tenants: Tenants) -> Tenants:
    """For tests that change nothing others look at."""
    # Tables belong to the store that was opened last, which may be another test's.
    module_tenants.services.store.database.bind()
    return module_tenants


@pytest.fixture
def tenants(open_tenants: Callable[[], AbstractContextManager[Tenants]]) -> Iterator[Tenants]:
    """Tenants of this test's own."""
    with open_tenants() as made:
        yield made
