"""How long a page of the request log takes among millions: `python -m bench.request_log [--rows N] [--database URL]`.

Usage rows over 366 days of 10 projects, 200 keys, 40 models and 30 sources, one in fifty failed, and an entry for each
twentieth request. The database has to be empty; without one a file is made and removed.
"""

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from gateway import ids
from gateway.clock import DAY_US, Clock
from gateway.configuration import settings
from gateway.metering.log.log_entries import STORE, LogEntry
from gateway.metering.log.search import LogFilter, LogScope, search
from gateway.metering.rollups.job import Rollups
from gateway.metering.usage_table import RECORD, UsageRecord, raw_id
from gateway.runtime.threads import Threads
from gateway.store.database import Database, open_database
from gateway.store.journal import Statement
from gateway.store.migrations import migrate
from gateway.store.partitions import id_at

DAYS, PROJECTS, KEYS, MODELS, SOURCES, PROVIDERS = 366, 10, 200, 40, 30, 8
BATCH, ROUNDS, LIMIT_MS = 20_000, 15, 50.0
REFUSED = "key_limit_reached"
EMPTY: dict[str, Any] = dict.fromkeys(UsageRecord._fields, 0) | {
    **dict.fromkeys(("finish", "price_version"), ""),
    **UsageRecord._field_defaults,
}


class World:
    """The rows, and the ids in them. The last project has one request in a thousand."""

    def __init__(self, rows: int) -> None:
        self.rows, self.chance = rows, random.Random(7)
        self.projects = [ids.new("proj") for _ in range(PROJECTS)]
        self.keys = [ids.new("key") for _ in range(KEYS)]
        self.organization, self.member = ids.new("org"), ids.new("member")
        self.end_us = Clock().now_us()
        self.label = ""

    def usage(self) -> Iterator[UsageRecord]:
        chance, step_us = self.chance, DAYS * DAY_US // self.rows
        projects, keys = [raw_id(one) for one in self.projects], [raw_id(one) for one in self.keys]
        own = {"organization": raw_id(self.organization), "member": raw_id(self.member), "operation": "chat"}
        counts = {"input": 900, "output": 300, "cost_nusd": 1_234_567, "duration_ms": 800, "status": 200}
        for number in range(self.rows):
            at = self.end_us - (self.rows - number) * step_us
            request = id_at(at)[:6] + chance.randbytes(10)
            key = chance.randrange(KEYS - PROJECTS) if chance.random() > 0.001 else KEYS - 1
            if not self.label and number > self.rows // 2 and key % PROJECTS == 0:
                self.label = f"label-{number}"
            model = f"model-{min(int(chance.expovariate(0.2)), MODELS - 1)}"
            yield UsageRecord(**{
                **EMPTY, **own, **counts, "at": at, "posted_at": at, "request": request, "api_key": keys[key],
                "project": projects[key % PROJECTS], "provider": f"provider-{chance.randrange(PROVIDERS)}",
                "asked": model, "served": model, "source": f"app-{chance.randrange(SOURCES)}",
                "error": "timeout" if number % 50 == 0 else None, "label": f"label-{number}",
            })  # fmt: skip

    def questions(self) -> dict[str, tuple[LogScope, LogFilter]]:
        busy, project = LogScope(self.projects[0]), self.projects[-1]
        middle_us = self.end_us - 180 * DAY_US
        return {
            "the newest of a project": (busy, LogFilter()),
            "half a year ago": (busy, LogFilter(to_us=middle_us)),
            "one key": (LogScope(self.projects[3], "", (self.keys[3],)), LogFilter()),
            "a key that is hardly used": (LogScope(project, "", (self.keys[-1],)), LogFilter()),
            "a usual model": (busy, LogFilter(model="model-1")),
            "a rare model": (busy, LogFilter(model=f"model-{MODELS - 1}")),
            "a model that never served": (busy, LogFilter(model="model-none")),
            "an app at a provider": (busy, LogFilter(source="app-7", provider="provider-3")),
            "failed": (busy, LogFilter(error="timeout")),
            "refused with 402": (busy, LogFilter(status=402)),
            "the caller's id": (busy, LogFilter(label=self.label)),
        }


def main(arguments: list[str] | None = None) -> int:
    """0 when every page came within its time."""
    parser = argparse.ArgumentParser(prog="python -m bench.request_log", description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--database", default="", help="address of an empty database")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        url = options.database or f"sqlite:///{folder}/gateway.db"
        threads = Threads()
        database = open_database(settings.DatabaseSettings(url, folder, 5, 60.0), Clock(), threads)
        try:
            migrate(database)
            world = World(options.rows)
            fill(database, world)
            return 0 if measure(database, world) else 1
        finally:
            database.close()
            threads.close()


def fill(database: Database, world: World) -> None:
    start = time.monotonic()
    usage = world.usage()
    while rows := list(islice(usage, BATCH)):
        entries = [
            LogEntry(row.request[:15] + b"\0", *row[21:25], 1, 402, "chat", "/v1/x", row.asked, row.source, REFUSED)
            for row in rows[::20]
        ]
        _write(database, RECORD, [(*row, None) for row in rows])
        _write(database, STORE, entries)
    Rollups(database).catch_up()
    if database.kind == "postgresql":
        database.write(lambda: database.execute("ANALYZE"), patient=True)
    print(f"{world.rows:,} usage rows in {time.monotonic() - start:.0f} s")


def _write(database: Database, statement: Statement, rows: Sequence[tuple[Any, ...]]) -> None:
    database.write(lambda: database.execute_many(statement.sql, [row[:] for row in rows]), patient=True)


def measure(database: Database, world: World) -> bool:
    good = True
    for name, (scope, wanted) in world.questions().items():
        times = []
        for _ in range(ROUNDS):
            start = time.monotonic()
            page = search(database, [scope], wanted, None, 50)
            times.append((time.monotonic() - start) * 1000)
        median = statistics.median(times)
        good = good and median <= LIMIT_MS
        print(f"{name:28} {median:7.1f} ms  {len(page.found):3} found{'' if page.following is None else ', more'}")
    return good


if __name__ == "__main__":
    sys.exit(main())
