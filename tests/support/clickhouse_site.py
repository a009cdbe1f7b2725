"""A store with usage rows, and their delivery to a table of ClickHouse."""

import random
from typing import Any

from support.clickhouse_server import ClickHouseServer
from support.clock import FakeClock
from support.usage import insert_rows, random_row

from gateway.clock import DAY_US, SECOND_US
from gateway.metering.clickhouse.clickhouse_http import open_client
from gateway.metering.clickhouse.sink import COMMIT_LAG_US, UsageSink
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.purge import UsagePurge
from gateway.runtime.loop_turns import always
from gateway.runtime.state_changes import StateLog
from gateway.store.database import Database
from gateway.store.documents import Documents
from gateway.transport import Transport

KEPT_DAYS = 3


class Site:
    """A store, a table of ClickHouse that no other test uses, and the delivery between them."""

    def __init__(self, database: Database, server: ClickHouseServer, transport: Transport, table: str) -> None:
        self.database = database
        self.server = server
        self.transport = transport
        self.table = table
        self.clock = FakeClock()
        self.clock.freeze()
        database.now_us = self.clock.now_us
        self.states = StateLog()
        self.dice = random.Random(table)
        self.sink = self.make_sink()

    def make_sink(self, batch_rows: int = 100) -> UsageSink:
        """A delivery as another worker would make it."""
        client = open_client(self.transport, self.server.url, self.table)
        documents = Documents(self.database)
        return UsageSink(self.database, documents, self.clock, self.states, client, self.table, batch_rows)

    def add(self, count: int, ago_us: int = COMMIT_LAG_US, **values: Any) -> None:
        """Post rows of requests up to two days old."""
        now_us = self.clock.now_us()
        insert_rows(
            self.database, *(self.row(now_us - ago_us - self.dice.randrange(SECOND_US), **values) for _ in range(count))
        )

    def row(self, posted_us: int, **values: Any) -> Any:
        at_us = posted_us - self.dice.randrange(2 * DAY_US)
        return random_row(self.dice, at_us, **{"posted_at": posted_us, **values})

    def deliver(self) -> None:
        self.sink.run(always)

    def count(self) -> int:
        return int(self.database.query_row("SELECT COUNT(*) FROM usage")[0])

    def counted(self) -> tuple[int, int]:
        """Rows and cost in ClickHouse."""
        ((rows, cost),) = self.server.query(f"SELECT count(), sum(cost_nusd) FROM {self.table} FINAL")
        return rows, cost

    def check(self) -> None:
        """Both sides have the same rows and costs."""
        rows, cost = self.database.query_row("SELECT COUNT(*), COALESCE(SUM(cost_nusd), 0) FROM usage")
        assert self.counted() == (int(rows), int(cost))
        assert self.sink.check() == []

    def remove_old_rows(self) -> None:
        """Remove usage rows older than KEPT_DAYS, as the leading worker does."""
        Rollups(self.database).catch_up()
        purge = UsagePurge(self.database, self.clock, KEPT_DAYS, "%never%", self.database.now_us)
        while purge.run():
            pass
