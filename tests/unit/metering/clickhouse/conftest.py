import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.clickhouse_server import ClickHouseServer, run_clickhouse
from support.clickhouse_site import Site

from gateway.metering.clickhouse.clickhouse_log import ClickHouseLog
from gateway.metering.clickhouse.clickhouse_reports import ClickHouseAnswers
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


@pytest.fixture
def archived(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site that reads its reports from ClickHouse."""
    for place in ("job", "purge", "days"):
        monkeypatch.setattr(f"gateway.metering.rollups.{place}.pause", lambda s: None)
    client = site.sink.client
    assert client is not None
    answers = ClickHouseAnswers(site.sink, client, site.clock)
    site.database.archive = ClickHouseLog(client, site.table, answers)
    return site
