from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.gateways import local_gateway
from support.management import PASSWORD, House

from gateway import settings as settings_module
from gateway.accounts.models import MODELS as ACCOUNT_MODELS
from gateway.limits.models import MODELS as LIMIT_MODELS
from gateway.metering.models import MODELS as METERING_MODELS


@pytest.fixture(scope="session")
def make_house(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    def make(**environment: str) -> Any:
        data: Path = tmp_path_factory.mktemp("house")
        base = {"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": str(data), "GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD}
        return local_gateway(lambda **more: settings_module.load(base | environment | more))

    return make


@pytest.fixture(scope="module")
def module_house(make_house: Callable[..., Any]) -> Iterator[House]:
    with make_house() as gateway:
        yield House(gateway)


@pytest.fixture
def shared_house(module_house: House) -> House:
    """For tests that change nothing others look at."""
    # Tables belong to the store that was opened last, which may be another test's.
    module_house.services.database.bind([*ACCOUNT_MODELS, *LIMIT_MODELS, *METERING_MODELS])
    return module_house


@pytest.fixture
def house(make_house: Callable[..., Any]) -> Iterator[House]:
    """A house of this test's own."""
    with make_house() as gateway:
        yield House(gateway)
