"""The fixtures of reports."""

from collections.abc import Iterator

import pytest
from support.gateways import local_gateway
from support.management import PASSWORD, House

from gateway import settings as settings_module


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A gateway with people in it, which the tests of a module share."""
    data = tmp_path_factory.mktemp("house")
    base = {"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": str(data), "GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD}
    with local_gateway(lambda **more: settings_module.load(base | more)) as gateway:
        yield House(gateway)
