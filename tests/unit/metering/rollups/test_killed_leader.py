"""The leader is killed (kill -9) while it updates rollups; another continues, and nothing counts twice."""

import random
import signal
import subprocess
import sys

import pytest
from support.usage import count_removed, insert_rows, stored_sums, sum_up, usage_row

from gateway.clock import DAY_US, HOUR_US
from gateway.configuration.settings import ROOT
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.purge import UsagePurge

pytestmark = pytest.mark.extended

# Works until the statement that begins with argv[2] was sent argv[3] times, and dies with its transaction open.
WORKER = """
import os, signal, sys
from gateway.configuration import settings
from gateway.clock import Clock
from gateway.metering.rollups import job, purge
from gateway.store.database import Database, open_database
from gateway.runtime.threads import Threads

url, verb, left = sys.argv[1], sys.argv[2], int(sys.argv[3])
job.BATCH_ROWS = purge.STEP_ROWS = 5

def die_at(method):
    def run(self, sql, *params):
        global left
        result = method(self, sql, *params)
        if sql.startswith(verb):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
        return result
    return run

Database.execute, Database.execute_many = die_at(Database.execute), die_at(Database.execute_many)
database = open_database(settings.DatabaseSettings(url, "", 3, 5.0), Clock(), Threads())
job.Rollups(database).catch_up()
purge.SHARE = 1.0
purge.UsagePurge(database, Clock(), 3, "%never%", database.now_us).run()
"""


@pytest.fixture
def store(postgresql_url, open_store):
    database = open_store(postgresql_url)
    dice, now_us = random.Random(2), database.now_us()
    rows = [
        usage_row(
            now_us - day * DAY_US - dice.randrange(3 * HOUR_US),
            posted_at=now_us - HOUR_US,
            cost_nusd=dice.randrange(99),
        )
        for day in (0, 0, 4, 5)
        for _ in range(15)
    ]
    insert_rows(database, *rows)
    return database, rows


@pytest.mark.parametrize(
    "verb, times",
    [
        ("INSERT INTO rollup (", 3),
        ("UPDATE rollup_state", 4),
        ("INSERT INTO removed_piece", 2),
        ("DELETE FROM usage", 2),
    ],
)
def test_the_next_leader_continues(store, postgresql_url, clock, verb, times) -> None:
    database, rows = store
    command = [sys.executable, "-c", WORKER, postgresql_url, verb, str(times)]
    killed = subprocess.run(command, cwd=ROOT, timeout=120, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    rollups = Rollups(database)
    state = rollups.state()
    assert state is not None and (state.filling or "removed" in verb or "usage" in verb)
    rollups.catch_up()
    assert stored_sums(database) == sum_up(rows)
    UsagePurge(database, clock, 3, "%never%", lambda: database.now_us()).run()
    assert stored_sums(database) == sum_up(rows) and count_removed(database) == 30
