"""The cost of statistics: reports over a year of usage, current rollups, the request log, and removing old rows.

python -m bench.rollups [--rows 5000000] [--postgresql | --url URL] [--parts fill,reports,job,purge]     a table

Without an address on SQLite, with --postgresql on a new server with default settings (needs PostgreSQL's
initdb), both in a folder that is removed; with an address, parts of a run can follow each other. Rows lie evenly over
366 days: 10 projects with 20 keys each, 40 models at 4 providers, 30 sources, each drawn anew for each row, which is
the worst that rollups can meet. With --tags each row has a session of some 20 requests of one key, a team (one of 80)
and a user (one of 500). Times are medians of nine, wall and CPU; CPU is that of this process: on SQLite all of
it, on PostgreSQL without the server's. Status 1 when a budget is not kept.
"""

import argparse
import gc
import importlib
import random
import resource
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gateway.catalogue.catalogue import Catalogue
from gateway.clock import DAY_US, HOUR_US, SECOND_US, Clock
from gateway.configuration import settings
from gateway.metering.activity import Owners, measure, measure_columns
from gateway.metering.log.search import LogFilter, LogScope, search
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.purge import UsagePurge
from gateway.metering.rollups.queries import at_once
from gateway.metering.sources import known_clients
from gateway.metering.usage_table import COLUMNS, UsageRecord
from gateway.reports import usage_reports as reports_module
from gateway.reports.shares import ShareQuestion, read_shares
from gateway.reports.usage_reports import Reports, ReportScope
from gateway.runtime.threads import Threads, pause
from gateway.store.database import Database, open_database
from gateway.store.migrations import migrate
from gateway.store.partitions import id_at
from gateway.surfaces.console.grouping import GROUPS, GroupName
from gateway.surfaces.console.usage_measures import MEASURES
from gateway.surfaces.console.usage_reader import UsageQuestion, read_usage
from gateway.surfaces.visitors.report_windows import read_window
from gateway.surfaces.visitors.usage_report import SHORT_FIGURES, write_rows

DAYS, PROJECTS, KEYS, MODELS, PROVIDERS, SOURCES = 366, 10, 20, 40, 4, 30
AT_ONCE, ROUNDS, A_SECOND = 20_000, 9, 500
BUDGET_MS, BUDGET_SHARE, BUDGET_MB, BUDGET_P99 = 50.0, 0.05, 50.0, 2.0
PURGED = 1_000_000  # rows at most
DAY_S = DAY_US / SECOND_US
LIVE_S, LIVE_PAUSE_S = 10.0, 0.005
EMPTY = dict.fromkeys(UsageRecord._fields, 0) | dict.fromkeys(("operation", "asked", "finish", "price_version"), "chat")
EMPTY |= UsageRecord._field_defaults
SESSION_TURNS, TURN_S, TEAMS, USERS = 20, 30, 8, 50  # teams and users of a project
INSERT = f"INSERT INTO usage ({COLUMNS}) VALUES ({', '.join('?' * len(UsageRecord._fields))})"
PLACES = {name: place for place, name in enumerate(UsageRecord._fields)}


@dataclass(frozen=True)
class Key:
    """The attributes of a key that reports need."""

    id: str
    description: str


class Figure(NamedTuple):
    """One line of the table; `good`: its budget is kept, or it has none."""

    name: str
    told: str
    good: bool = True


def project_id(number: int) -> str:
    return f"proj_{number:032x}"


def key_id(project: int, number: int) -> str:
    return f"key_{project * KEYS + number + 1:032x}"


class Sessions:
    """Sessions in progress, each of one key; at any time as many as make the rate of requests with TURN_S between two
    turns."""

    def __init__(self, dice: random.Random, a_second: float) -> None:
        self._dice = dice
        self._open = [self._begin() for _ in range(max(20, round(a_second * TURN_S)))]

    def _begin(self) -> tuple[str, int, int, str]:
        project, key = self._dice.randrange(PROJECTS), self._dice.randrange(KEYS)
        tags = f'{{"team":"team-{key % TEAMS}","user":"user-{project}-{self._dice.randrange(USERS)}"}}'
        return self._dice.randbytes(16).hex(), project, key, tags

    def turn(self) -> tuple[str, int, int, str]:
        """Return session, project, key and tags of the next request."""
        place = int(self._dice.random() * len(self._open))
        session = self._open[place]
        if self._dice.random() * SESSION_TURNS < 1:
            self._open[place] = self._begin()
        return session


def make_rows(
    dice: random.Random, count: int, first_us: int, last_us: int, posted: bool, sessions: Sessions | None = None
) -> Iterator[tuple[Any, ...]]:
    """Rows in the order of their time; recorded at once, or all before rollups begin."""
    of_session, of_tags = PLACES["session"], PLACES["tags"]
    width = (last_us - first_us) / max(1, count)
    projects = [bytes.fromhex(project_id(number)[5:]) for number in range(PROJECTS)]
    keys = [[bytes.fromhex(key_id(project, key)[4:]) for key in range(KEYS)] for project in range(PROJECTS)]
    base = EMPTY | {"organization": bytes(16), "member": bytes(16), "input": 900, "output": 300}
    base |= {"input_nusd": 7, "output_nusd": 9}
    names = ("at", "posted_at", "request", "project", "api_key", "provider", "served", "source", "cost_nusd")
    at, post, request, owner, key, maker, served, source, cost = (PLACES[name] for name in names)
    line = list(base.values())
    drawn = dice.random
    for number in range(count):
        at_us = round(first_us + number * width)
        project, of_project, model = int(drawn() * PROJECTS), int(drawn() * KEYS), int(drawn() * MODELS)
        if sessions:
            line[of_session], project, of_project, line[of_tags] = sessions.turn()
        line[at], line[post] = at_us, at_us if posted else first_us
        line[request] = id_at(at_us)[:6] + dice.randbytes(10)
        line[owner], line[key] = projects[project], keys[project][of_project]
        line[maker], line[served] = f"provider-{model % PROVIDERS}", f"model-{model}"
        line[source], line[cost] = f"app-{int(drawn() * SOURCES)}", int(drawn() * 10**7)
        yield tuple(line)


def fill(database: Database, rows: Iterator[tuple[Any, ...]]) -> None:
    batch: list[tuple[Any, ...]] = []
    write = copy_rows if database.kind == "postgresql" else insert_rows
    for row in rows:
        batch.append(row)
        if len(batch) == AT_ONCE:
            write(database, batch)
            batch = []
    if batch:
        write(database, batch)


def insert_rows(database: Database, rows: list[tuple[Any, ...]]) -> None:
    database.write(lambda: database.execute_many(INSERT, rows), patient=True)


def copy_rows(database: Database, rows: list[tuple[Any, ...]]) -> None:
    def copy() -> None:
        with database.peewee.cursor().copy(f"COPY usage ({COLUMNS}) FROM STDIN") as into:
            for row in rows:
                into.write_row(row)

    database.write(copy, patient=True)


def median_of(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU time in ms; the first time is for warming up."""
    work()
    walls, cpus = [], []
    for _ in range(ROUNDS):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        walls.append((time.perf_counter() - wall) * 1000)
        cpus.append((time.process_time() - cpu) * 1000)
    return statistics.median(walls), statistics.median(cpus)


def activity(database: Database, now_us: int, zone: str = "UTC") -> object:
    """Run the queries of GET /activity over 365 days."""
    window = read_window({"timeRange": "365d", "timezone": zone}, now_us)
    owners = Owners(project_ids=(project_id(3),))
    totals, parts = at_once(
        database,
        lambda: (
            measure(database, owners, window.span, "total"),
            measure_columns(database, owners, window.span, "model", SHORT_FIGURES),
        ),
    )
    return write_rows(totals, parts, window, "model", lambda value: {"id": value[0], "provider": value[1]})


def tag_questions(
    database: Database, now_us: int, keys: dict[str, Key]
) -> Iterator[tuple[str, Callable[[], object], bool]]:
    """Yield what the pages and reports of usage by tag and session read, of a project, of all and of a few keys."""
    window = read_window({"timeRange": "365d"}, now_us)
    whole = window.whole().span
    of_project = Owners(project_ids=(project_id(3),))
    of_all = Owners(project_ids=tuple(project_id(number) for number in range(PROJECTS)))
    for owned, owners in (("a project", of_project), ("all", of_all), ("two keys", Owners(key_ids=tuple(keys)[:2]))):
        for group, tag in (("session", ""), ("tag", "team"), ("tag", "user")):
            name = tag or group
            shares = ShareQuestion(owners, whole, group, tag)
            page = UsageQuestion(
                owners, owners, window, window.by_week(), GROUPS[group].dimension, name_value, MEASURES["spend"], tag
            )
            yield f"shares of 365 days by {name}, {owned}", lambda asked=shares: read_shares(database, asked), False
            yield f"Explore of 365 days by {name}, {owned}", lambda asked=page: read_usage(database, asked), False


def name_value(values: tuple[Any, ...]) -> GroupName:
    return GroupName(values[0], values[0])


def questions(database: Database, clock: Clock) -> Iterator[tuple[str, Callable[[], object], bool]]:
    """Yield the name of each query, its function, and whether the time budget applies to it."""
    keys = {key_id(3, n): Key(key_id(3, n), f"key {n}") for n in range(KEYS)}
    mine = {ident: keys[ident] for ident in list(keys)[:2]}
    reports_module.keys_of = lambda _, scope: keys if scope.whole else mine
    reports_module.owners_of = lambda _, scope: (
        Owners(project_ids=(project_id(3),)) if scope.whole else Owners(key_ids=tuple(mine))
    )
    catalogue = Catalogue((), (), {})
    reports = Reports(database, clock, None, None, lambda: catalogue, known_clients())  # type: ignore[arg-type]
    now_us = database.now_us()
    first = time.strftime("%Y-%m-%d", time.gmtime((now_us - (DAYS - 1) * DAY_US) / SECOND_US))
    for role in ("owner", "developer"):
        scope = ReportScope("org", project_id(3), "user", "member", role, key_id(3, 0))
        yield f"get-usage of 366 days, {role}", lambda at=scope: reports.get_usage(at, first), True
        for group in ("provider", "model", "app", "api_key"):
            name = f"breakdown by {group}, 366 days, {role}"
            yield name, lambda at=scope, by=group: reports.get_usage_breakdown(at, by, from_date=first), True
    yield "/activity of 365 days", lambda: activity(database, now_us), True
    yield "/activity of 365 days of Berlin", lambda: activity(database, now_us, "Europe/Berlin"), False
    yield from tag_questions(database, now_us, keys)
    busy, key = LogScope(project_id(3)), bytes.fromhex(key_id(3, 1)[4:]).hex()
    for name, wanted in (
        ("the newest", LogFilter()),
        ("half a year ago", LogFilter(to_us=now_us - 180 * DAY_US)),
        ("a model at a provider", LogFilter(model="provider-1/model-1")),
        ("an app", LogFilter(source="app-7")),
        ("failed", LogFilter(error="timeout")),
    ):
        yield f"a page of logs: {name}", lambda by=wanted: search(database, [busy], by, None, 50), True
    owned = LogScope(project_id(3), "", (f"key_{key}",))
    yield "a page of logs: one key", lambda: search(database, [owned], LogFilter(), None, 50), True


def measure_job(database: Database, rollups: Rollups, dice: random.Random, tagged: bool) -> float:
    """Return the share of a core that the rollups of A_SECOND rows a second take, with a round every 20 s."""
    spent = 0.0
    sessions = Sessions(dice, A_SECOND) if tagged else None
    for _ in range(3):
        now_us = database.now_us()
        fill(database, make_rows(dice, A_SECOND * 20, now_us - 1000, now_us, True, sessions))
        start = time.process_time()
        rollups.advance(lag_us=0)
        spent += time.process_time() - start
    return spent / 60


class LiveWriter:
    """Another process that commits rows one after the other, as settled requests do, until `p99` is called."""

    def __init__(self, url: str) -> None:
        command = [sys.executable, "-m", "bench.rollups", "--live", "--url", url]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=settings.ROOT
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it has begun

    def p99(self) -> float:
        """End the process and return the 99th percentile of its commit times in ms."""
        told, _ = self._process.communicate("", timeout=60)
        return float(told)


def write_live(database: Database) -> None:
    """Commit rows until standard input ends, then print the 99th percentile of the commit times in ms."""
    dice, taken_ms = random.Random(), []
    print("begun", flush=True)
    while not select.select([sys.stdin], [], [], LIVE_PAUSE_S)[0]:
        now_us = database.now_us()
        rows = list(make_rows(dice, 1, now_us, now_us, posted=True))
        start = time.perf_counter()
        insert_rows(database, rows)
        taken_ms.append((time.perf_counter() - start) * 1000)
    print(sorted(taken_ms)[int(len(taken_ms) * 0.99)], flush=True)


def measure_purge(database: Database, url: str, clock: Clock, rows: int) -> Iterator[Figure]:
    rollups = Rollups(database)
    rollups.catch_up()
    live = LiveWriter(url)
    pause(LIVE_S)
    before_ms = live.p99()
    rollups.catch_up()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    keep_days = DAYS - round(DAYS * min(0.9, PURGED / rows))
    purge, live = UsagePurge(database, clock, keep_days, "%never%", database.now_us), LiveWriter(url)
    start, cpu = time.perf_counter(), time.process_time()
    gone, minimum = purge.run(), LIVE_S / 2
    taken, spent = time.perf_counter() - start, time.process_time() - cpu
    pause(max(0.0, minimum - taken))
    during_ms = live.p99()
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024
    yield Figure("purge", f"{gone:,} rows in {taken:.1f} s, {gone / taken:,.0f} a second, {spent:.1f} s of CPU")
    told = f"{before_ms:.1f} ms without, {during_ms:.1f} ms during the purge"
    yield Figure("p99 of a live commit", told, during_ms < BUDGET_P99 * before_ms)
    yield Figure("memory that a purge adds", f"{more:.0f} MB", more < BUDGET_MB)


def measure_fill(database: Database, dice: random.Random, rows: int, tagged: bool) -> Iterator[Figure]:
    now_us, start = database.now_us(), time.perf_counter()
    sessions = Sessions(dice, rows / DAYS / DAY_S) if tagged else None
    fill(database, make_rows(dice, rows, now_us - DAYS * DAY_US, now_us - HOUR_US, False, sessions))
    yield Figure("usage rows made", f"{rows:,} in {time.perf_counter() - start:.0f} s")
    rollups = Rollups(database)
    start, cpu = time.perf_counter(), time.process_time()
    rollups.catch_up()
    taken, spent = time.perf_counter() - start, time.process_time() - cpu
    yield Figure("first fill", f"{rows / taken:,.0f} rows/s, {taken:.0f} s, {spent:.0f} s of CPU")
    yield Figure("rows of rollups", tell_rows(database))
    if database.kind == "postgresql":
        database.write(lambda: database.execute("ANALYZE"), patient=True)


def measure_reports(database: Database, clock: Clock) -> Iterator[Figure]:
    for name, work, meant in questions(database, clock):
        wall, cpu_ms = median_of(work)
        yield Figure(name, f"{wall:.1f} ms, {cpu_ms:.1f} of CPU", wall < BUDGET_MS or not meant)


def run(database: Database, url: str, clock: Clock, rows: int, parts: list[str], tagged: bool) -> Iterator[Figure]:
    dice = random.Random(1)
    if "fill" in parts:
        yield from measure_fill(database, dice, rows, tagged)
    if "reports" in parts:
        yield from measure_reports(database, clock)
    if "job" in parts:
        share = measure_job(database, Rollups(database), dice, tagged)
        yield Figure(f"the job at {A_SECOND} rows/s", f"{share:.1%} of a core", share < BUDGET_SHARE)
    if "purge" in parts:
        yield from measure_purge(database, url, clock, rows)


def tell_rows(database: Database) -> str:
    """How many rows lie in the table, by what they sum up."""
    found = database.report(lambda: database.fetch("SELECT series / 8, COUNT(*) FROM rollup GROUP BY series / 8"))
    counts = {int(level): int(count) for level, count in found}
    return ", ".join(f"{counts.get(level, 0):,} of {name}" for level, name in enumerate(("hours", "days", "blocks")))


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if every query and job kept within its budget, else 1."""
    parser = argparse.ArgumentParser(prog="python -m bench.rollups", description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--url", default="", help="address of an empty database")
    parser.add_argument("--postgresql", action="store_true", help="on a new server")
    parser.add_argument("--parts", type=lambda given: given.split(","), default=["fill", "reports", "job", "purge"])
    parser.add_argument("--tags", action="store_true", help="each row has a session and two tags")
    parser.add_argument("--live", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    good = True
    gc.freeze()  # as each worker does
    gc.set_threshold(20_000, 2, 250)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp"))
        url = given.url or f"sqlite:///{Path(folder) / 'bench.db'}"
        if given.postgresql:
            sys.path.insert(0, str(settings.ROOT / "tests"))
            servers = importlib.import_module("support.servers")
            url = stack.enter_context(servers.run_postgres(servers.DEFAULTS))
        clock = Clock()
        database = open_database(settings.DatabaseSettings(url, folder, 4, 60.0), clock, Threads())
        stack.callback(database.close)
        if given.live:
            write_live(database)
            return 0
        migrate(database)
        for name, told, kept in run(database, url, clock, given.rows, given.parts, given.tags):
            print(f"| {name} | {told}{'' if kept else ' (over budget)'} |", flush=True)
            good = good and kept
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
