import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.gateways import LocalGateway, local_gateway
from support.management import PASSWORD, House, Person

from gateway import settings as settings_module
from gateway.accounts.models import MODELS as ACCOUNT_MODELS
from gateway.limits.models import MODELS as LIMIT_MODELS
from gateway.metering.models import MODELS as METERING_MODELS
from gateway.settings import Settings


def load(data: Path, **environment: str) -> Settings:
    base = {"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": str(data), "GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD}
    return settings_module.load(base | environment)


@pytest.fixture(scope="session")
def make_house(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """A factory of gateways that nobody is in yet, with these variables."""

    def make(**environment: str) -> Any:
        data = tmp_path_factory.mktemp("house")
        return local_gateway(lambda **more: load(data, **environment, **more))

    return make


@pytest.fixture(scope="session")
def settled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, dict[str, Person]]:
    """The data directory of a closed gateway with its people in it, to be copied, and its first key."""
    data = tmp_path_factory.mktemp("settled")
    with local_gateway(lambda **more: load(data, **more)) as gateway:
        people = House(gateway).people
    return data, gateway.key, people


@pytest.fixture(scope="session")
def open_house(
    settled: tuple[Path, str, dict[str, Person]], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], AbstractContextManager[House]]:
    """A factory of houses of their own."""
    template, key, people = settled

    @contextmanager
    def make() -> Iterator[House]:
        data = tmp_path_factory.mktemp("house") / "data"
        shutil.copytree(template, data)
        gateway = LocalGateway(load(data, GATEWAY_BOOTSTRAP_API_KEY=key), key)
        try:
            yield House(gateway, people)
        finally:
            gateway.close()

    return make


@pytest.fixture(scope="module")
def module_house(open_house: Callable[[], AbstractContextManager[House]]) -> Iterator[House]:
    with open_house() as made:
        yield made


@pytest.fixture
def shared_house(module_house: House) -> House:
    """For tests that change nothing others look at."""
    # Tables belong to the store that was opened last, which may be another test's.
    module_house.services.store.database.bind([*ACCOUNT_MODELS, *LIMIT_MODELS, *METERING_MODELS])
    return module_house


@pytest.fixture
def house(open_house: Callable[[], AbstractContextManager[House]]) -> Iterator[House]:
    """A house of this test's own."""
    with open_house() as made:
        yield made
