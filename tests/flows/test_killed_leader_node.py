"""After kill -9 of the leader node during a recurring job, the other node takes over."""

import random
import time
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest
from support import postgres
from support.gateways import GatewayProcess
from support.spending import SECRETS
from support.usage import count_removed, insert_rows, stored_sums, sum_up, usage_row

from gateway.billing import ledger_close
from gateway.clock import DAY_US, HOUR_US
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.proof import compare_rollups
from gateway.store.database import Database
from gateway.store.documents import Documents

pytestmark = pytest.mark.extended

PROMISE_S, MARGIN_S = 10.0, 3.0
WAIT_S = 30.0
LEADER = "SELECT worker, epoch FROM leader WHERE name = 'jobs' AND expires_at > 0"
# Sessions of the gateway that wait for a lock with a transaction open.
WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND xact_start IS NOT NULL
"""


@pytest.fixture
def nodes(postgres_databases: postgres.Databases, tmp_path) -> Iterator[tuple[str, list[GatewayProcess]]]:
    url = postgres_databases.take()
    environment = SECRETS | {"DATABASE_URL": url, "GATEWAY_METERING_USAGE_DAYS": "3"}
    running = [GatewayProcess(tmp_path / f"node{number}", **environment) for number in range(2)]
    running[1].environment["GATEWAY_BOOTSTRAP_API_KEY"] = running[1].key = running[0].key
    try:
        yield url, running
    finally:
        for node in running:
            with suppress(Exception):
                node.discard()
        postgres_databases.give(url)


def until(found, subject: str, seconds: float = WAIT_S) -> float:
    """How long it took until something is found."""
    start = time.monotonic()
    while not found():
        assert time.monotonic() - start < seconds, f"{subject}: not within {seconds} s"
        time.sleep(0.05)
    return time.monotonic() - start


def select(database: Database, sql: str):
    return database.read(lambda: database.execute(sql).fetchone())


def test_the_other_node_goes_on_with_rollups_and_removal_and_nothing_counts_twice(nodes, open_store) -> None:
    url, (first, second) = nodes
    database, dice = open_store(url), random.Random(5)
    now_us = database.now_us()
    old = [
        usage_row(now_us - day * DAY_US - dice.randrange(3 * HOUR_US), posted_at=now_us - HOUR_US, cost_nusd=7)
        for day in (4, 5, 6)
        for _ in range(40)
    ]
    insert_rows(database, *old)
    Rollups(database).catch_up()
    # Rows are removed only after the ledger has posted their hour.
    Documents(database).put(ledger_close.KIND, ledger_close.KEY, str(now_us).encode(), ledger_close.FOREVER_S)
    with psycopg.connect(url) as connection:
        # Aggregation and deletion have to wait in the middle of their work.
        connection.execute("LOCK TABLE rollup_hour IN SHARE MODE")
        fresh = [usage_row(now_us - dice.randrange(HOUR_US), posted_at=now_us, cost_nusd=3) for _ in range(200)]
        insert_rows(database, *fresh)
        first.start()
        until(lambda: select(database, WAITING)[0] >= 2, "a rollup and a removal under way")
        leader = select(database, LEADER)
        second.start()
        first.kill()
        connection.rollback()
    until(lambda: select(database, LEADER) not in (None, leader), "another leader", PROMISE_S + MARGIN_S)
    rows = [*old, *fresh]
    # Removing rests between its steps.
    until(lambda: count_removed(database) == len(old) and stored_sums(database) == sum_up(rows), "its work", 2 * WAIT_S)
    assert select(database, "SELECT COUNT(*) FROM usage")[0] == len(fresh)
    compared = database.read(lambda: [database.fetch(sql, params) for sql, params, _ in compare_rollups(database, 0)])
    assert compared == [[]] * len(compared)
