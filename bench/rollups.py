"""What statistics cost: reports over a year of usage, keeping rollups current, and removing old rows.

python -m bench.rollups [--rows 5000000] [--url postgresql://…]     a table; without a url on SQLite in its own folder

Rows lie evenly over 366 days: 10 projects with 20 keys each, 40 models at 4 providers, 30 sources, each drawn anew for
each row, which is the worst that rollups can meet. Times are medians of nine. CPU is that of this process: on SQLite
all of it, on PostgreSQL without the server's.
"""

import argparse
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway import settings
from gateway.catalogue.catalogue import Catalogue
from gateway.clock import DAY_US, HOUR_US, SECOND_US, Clock
from gateway.metering.activity import Owners, measure, measure_plain
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.purge import UsagePurge
from gateway.metering.rollups.reading import at_once
from gateway.metering.sources import known_clients
from gateway.metering.usage_table import COLUMNS, UsageRecord
from gateway.reports import usage as reports_module
from gateway.reports.scope import ReportScope
from gateway.reports.usage import Reports
from gateway.store.database import Database, open_database
from gateway.store.migrations import migrate
from gateway.store.partitions import id_at
from gateway.surfaces.management.activity import SHORT, write_rows
from gateway.surfaces.management.windows import read_window
from gateway.threads import Threads

DAYS, PROJECTS, KEYS, MODELS, PROVIDERS, SOURCES = 366, 10, 20, 40, 4, 30
AT_ONCE, ROUNDS, A_SECOND = 20_000, 9, 500
BUDGET_MS, BUDGET_SHARE = 50.0, 0.05
EMPTY = dict.fromkeys(UsageRecord._fields, 0) | dict.fromkeys(("operation", "asked", "finish", "price_version"), "chat")
EMPTY |= dict.fromkeys(("error", "label", "extra", "storage_nusd", "discount_ppm", "discount_nusd"))
INSERT = f"INSERT INTO usage ({COLUMNS}) VALUES ({', '.join('?' * len(UsageRecord._fields))})"


@dataclass(frozen=True)
class Key:
    """What reports need of a key."""

    id: str
    description: str


def project_id(number: int) -> str:
    return f"proj_{number:032x}"


def key_id(project: int, number: int) -> str:
    return f"key_{project * KEYS + number + 1:032x}"


def make_rows(dice: random.Random, count: int, first_us: int, last_us: int, posted: bool) -> Iterator[tuple[Any, ...]]:
    """Rows in the order of their time; recorded at once, or all before rollups begin."""
    width = (last_us - first_us) / max(1, count)
    for number in range(count):
        at_us = round(first_us + number * width)
        project, key, model = dice.randrange(PROJECTS), dice.randrange(KEYS), dice.randrange(MODELS)
        request = id_at(at_us)[:6] + dice.randbytes(10)
        yield tuple({
            **EMPTY,
            "at": at_us, "posted_at": at_us if posted else first_us, "request": request, "organization": bytes(16),
            "project": bytes.fromhex(project_id(project)[5:]), "api_key": bytes.fromhex(key_id(project, key)[4:]),
            "member": bytes(16), "provider": f"provider-{model % PROVIDERS}", "served": f"model-{model}",
            "source": f"app-{dice.randrange(SOURCES)}", "cost_nusd": dice.randrange(10**7), "input": 900, "output": 300,
            "input_nusd": 7, "output_nusd": 9,
        }.values())  # fmt: skip


def fill(database: Database, rows: Iterator[tuple[Any, ...]]) -> None:
    batch: list[tuple[Any, ...]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == AT_ONCE:
            database.write(lambda part=batch: database.execute_many(INSERT, part))
            batch = []
    database.write(lambda: database.execute_many(INSERT, batch) if batch else 0)


def median_ms(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        taken.append((time.perf_counter() - start) * 1000)
    return statistics.median(taken)


def activity(database: Database, now_us: int) -> object:
    """What GET /activity of 365 days does beyond HTTP."""
    window = read_window({"timeRange": "365d"}, now_us)
    owners = Owners(project_ids=(project_id(3),))
    totals, rows = at_once(
        database,
        lambda: (
            measure(database, owners, window.span, "total"),
            measure_plain(database, owners, window.span, "model", SHORT),
        ),
    )
    return write_rows(totals, rows, window, "model", lambda value: {"id": value[0], "provider": value[1]})


def measure_reports(database: Database, clock: Clock) -> Iterator[tuple[str, float]]:
    keys = {key_id(3, n): Key(key_id(3, n), f"key {n}") for n in range(KEYS)}
    reports_module.keys_of = lambda *_: keys
    catalogue = Catalogue((), (), {})
    reports = Reports(database, clock, None, None, lambda: catalogue, known_clients())  # type: ignore[arg-type]
    scope = ReportScope("org", project_id(3), "user", "member", "owner", key_id(3, 0))
    now_us = database.now_us()
    first = time.strftime("%Y-%m-%d", time.gmtime((now_us - (DAYS - 1) * DAY_US) / SECOND_US))
    yield "get-usage of 366 days", median_ms(lambda: reports.get_usage(scope, first))
    for group in ("provider", "model", "app", "api_key"):
        name = f"breakdown by {group}, 366 days"
        yield name, median_ms(lambda by=group: reports.get_usage_breakdown(scope, by, from_date=first))
    yield "/activity of 365 days", median_ms(lambda: activity(database, now_us))


def measure_job(database: Database, rollups: Rollups, dice: random.Random) -> float:
    """The share of a core that keeping up with A_SECOND rows a second takes, at a round each 20 s."""
    spent = 0.0
    for _ in range(3):
        now_us = database.now_us()
        fill(database, make_rows(dice, A_SECOND * 20, now_us - 1000, now_us, posted=True))
        start = time.process_time()
        rollups.advance(lag_us=0)
        spent += time.process_time() - start
    return spent / 60


def run(database: Database, clock: Clock, rows: int) -> Iterator[tuple[str, str]]:
    dice, now_us = random.Random(1), database.now_us()
    fill(database, make_rows(dice, rows, now_us - DAYS * DAY_US, now_us - HOUR_US, posted=False))
    rollups = Rollups(database)
    start = time.perf_counter()
    rollups.catch_up()
    taken = time.perf_counter() - start
    yield "first fill", f"{rows / taken:,.0f} rows/s, {taken:.0f} s"
    count = database.report(lambda: database.execute("SELECT COUNT(*) FROM rollup").fetchone())[0]
    yield "rows of rollups", f"{count:,}"
    for name, ms in measure_reports(database, clock):
        yield name, f"{ms:.1f} ms{'' if ms < BUDGET_MS else ' (above 50)'}"
    share = measure_job(database, rollups, dice)
    yield f"the job at {A_SECOND} rows/s", f"{share:.1%} of a core{'' if share < BUDGET_SHARE else ' (above 5%)'}"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    purge, start = UsagePurge(database, clock, DAYS * 4 // 5, "%never%"), time.perf_counter()
    gone = purge.run()
    taken = time.perf_counter() - start
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    yield "purge", f"{gone:,} rows in {taken:.0f} s, a quarter of it at work, {more:.0f} MB more"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--url", default="")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        url = given.url or f"sqlite:///{Path(folder) / 'bench.db'}"
        clock = Clock()
        database = open_database(settings.DatabaseSettings(url, folder, 4, 60.0), clock, Threads())
        migrate(database)
        for name, told in run(database, clock, given.rows):
            print(f"| {name} | {told} |", flush=True)
        database.close()


if __name__ == "__main__":
    main()
