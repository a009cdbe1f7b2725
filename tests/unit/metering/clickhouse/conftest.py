import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.clickhouse_server import ClickHouseServer, run_clickhouse
from support.clickhouse_site import Site

from gateway.store.database import Database
from gateway.transport import Transport


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseServer]:
    with run_clickhouse(tmp_path_factory.mktemp("clickhouse")) as running:
        yield running


@pytest.fixture
def site(
    database: Database, server: ClickHouseServer, settings: Callable[..., Any], request: pytest.FixtureRequest
) -> Site:
    chosen = settings()
    table = f"usage_{zlib.crc32(request.node.nodeid.encode())}"
    return Site(database, server, Transport(chosen.timeouts, chosen.security), table)
