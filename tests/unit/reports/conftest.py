"""The fixtures of reports."""

from collections.abc import Iterator

import pytest
from support.gateways import local_gateway
from support.management import PASSWORD, Tenants

from gateway.configuration import settings as settings_module


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    """A gateway with people in it, which the tests of a module share."""
    data = tmp_path_factory.mktemp("data")
    base = {"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": str(data), "GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD}
    with local_gateway(lambda **more: settings_module.load(base | more)) as gateway:
        yield Tenants(gateway)
