"""How many requests one PostgreSQL server carries: `python -m bench.scale [--measure]`.

A simulation of the workers' group commits on one server, with costs that `--measure` measures on this machine. It
prints, for rising rates, the rows that share a commit, the processor time of the server, and how long an answer waits
for its row. docs/scale.md explains the figures.
"""

import argparse
import contextlib
import heapq
import os
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.pairs import import_from_tests
from gateway.clock import Clock
from gateway.configuration import settings
from gateway.limits.leases import SPEND
from gateway.metering.usage_table import INSERT_PLAIN, PLAIN_COLUMNS
from gateway.runtime.threads import Threads
from gateway.store.database import Database, open_database
from gateway.store.journal import BATCH, Row, gather, marks_of
from gateway.store.migrations import migrate

TICKS = os.sysconf("SC_CLK_TCK")
BYTES = ("request", "organization", "project", "api_key", "member")
TEXTS = ("operation", "provider", "asked", "served", "source", "finish", "price_version")
# A worker reads the control version four times a second, writes its row twice, and folds its leases 2.5 times.
BACKGROUND = 8.5
RATES = (100, 1_000, 5_000, 10_000, 25_000, 50_000, 100_000)
A_WORKER = 2_500  # requests a second of one worker on its own core, at a quarter of the measured maximum
SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of a commit: the server's processor time for the commit and for each row, and the time of a flush, in
    seconds; the bytes of a row in tables, indexes and log."""

    commit_s: float
    row_s: float
    flush_s: float


# Measured with --measure on the machine of docs/performance.md (two cores that other programs share).
MEASURED = Costs(commit_s=0.0003, row_s=0.000018, flush_s=0.002)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One simulated rate."""

    rows_a_commit: float
    cores: float
    wait_ms: float
    late_ms: float  # 99 % of answers wait no longer


def simulate(rate: float, workers: int, cores: int, costs: Costs, seconds: float = SECONDS) -> Outcome:
    """Simulate the commits of `workers` that share `rate` requests a second on a server with `cores`.

    A worker has one commit in progress, and gathers requests meanwhile. The server runs commits on its cores, first
    come first served, and flushes the log for all that wait for it together.
    """
    chance = random.Random(1)
    each = rate / workers
    starts = [(chance.random() * costs.flush_s, number) for number in range(workers)]
    heapq.heapify(starts)
    gathered_from = [0.0] * workers
    first = [0] * workers  # 1: a request that ends the worker's idleness
    free_at = [0.0] * cores
    heapq.heapify(free_at)
    flush_ends = 0.0
    commits = rows = 0
    busy_s = 0.0
    waits: list[float] = []
    while starts[0][0] < seconds:
        now, number = heapq.heappop(starts)
        count = min(BATCH, first[number] + draw_count(chance, each * (now - gathered_from[number])))
        first[number] = 0
        if not count:
            gathered_from[number] = now + chance.expovariate(each)
            first[number] = 1
            heapq.heappush(starts, (gathered_from[number], number))
            continue
        work_s = costs.commit_s + count * costs.row_s
        ready = max(now, heapq.heappop(free_at)) + work_s
        heapq.heappush(free_at, ready)
        if ready > flush_ends:
            # A commit waits for the flush in progress, and takes part in the next one.
            flush_ends = max(ready, flush_ends) + costs.flush_s
        waits += [flush_ends - now + (now - gathered_from[number]) / 2] * count
        gathered_from[number] = now
        heapq.heappush(starts, (flush_ends, number))
        commits += 1
        rows += count
        busy_s += work_s
    waits.sort()
    background_s = BACKGROUND * workers * costs.commit_s
    return Outcome(
        rows / commits,
        busy_s / seconds + background_s,
        statistics.median(waits) * 1000,
        waits[int(len(waits) * 0.99)] * 1000,
    )


def draw_count(chance: random.Random, expected: float) -> int:
    """Return a number of arrivals: Poisson, or its normal approximation for large expectations."""
    if expected > 30:
        return max(0, round(chance.gauss(expected, expected**0.5)))
    count = 0
    left = chance.expovariate(1.0)
    while left < expected:
        count += 1
        left += chance.expovariate(1.0)
    return count


def measure() -> Costs:
    """Measure the costs of a commit on a new server with its default settings."""
    servers = import_from_tests("servers")
    with servers.run_postgres(servers.DEFAULTS) as url, tempfile.TemporaryDirectory() as folder:
        config = settings.load({"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": folder, "DATABASE_URL": url})
        database = open_database(config.database, Clock(), Threads())
        migrate(database)
        database.write(lambda: make_leases(database))
        data = Path(url.rpartition("host=")[2])
        one = commit_cost(database, data, 1, 2_000)
        many = commit_cost(database, data, 64, 400)
        flush_s = statistics.median(lone_commits(database))
        database.close()
    row_s = (many - one) / 63
    return Costs(one - row_s, row_s, flush_s)


def make_leases(database: Database) -> None:
    """Create the leases that the commits charge."""
    database.execute("INSERT INTO worker (epoch, node, expires_at, seen_version) VALUES (1, 'bench', 0, 0)")
    for number in range(1, 5):
        database.execute(
            "INSERT INTO budget (id, scope, scope_id, kind, settled_nusd, leased_nusd, period, generation) "
            "VALUES (?, 'key', 'bench', 'total', 0, 0, '', 0)",
            (f"bench{number}",),
        )
        database.execute(
            "INSERT INTO lease (id, budget, worker, generation, granted_nusd, spent_nusd, taken_at) "
            "VALUES (?, ?, 1, 0, 0, 0, 0)",
            (number, f"bench{number}"),
        )


def commit_cost(database: Database, data: Path, rows: int, commits: int) -> float:
    """Return the server's processor time of one commit of `rows` rows."""
    before = server_time(data)
    for seq in range(commits):
        commit(database, f"{rows}", seq + 1, rows)
    return (server_time(data) - before) / commits


def lone_commits(database: Database) -> list[float]:
    """Return the times of commits of one row."""
    took = []
    for seq in range(200):
        began = time.perf_counter()
        commit(database, "lone", seq + 1, 1)
        took.append(time.perf_counter() - began)
    return took


def commit(database: Database, writer: str, seq: int, rows: int) -> None:
    """Commit as a worker's journal does: usage rows, and the spending of four leases."""
    entries = [make_rows() for _ in range(rows)]
    database.write_together([*marks_of(writer, seq, time.time_ns() // 1000, 0), *gather(entries)])


def make_rows() -> list[Row]:
    now_us = time.time_ns() // 1000
    values = {name: "gpt-4o-mini" for name in TEXTS} | {name: os.urandom(16) for name in BYTES}
    values |= {"at": now_us, "posted_at": now_us}
    return [(INSERT_PLAIN, tuple(values.get(name, 1) for name in PLAIN_COLUMNS)), (SPEND, ((1, 2, 3, 4), 1000))]


def server_time(folder: Path) -> float:
    """Return the processor time of the PostgreSQL server in `folder` and of all its processes, in seconds."""
    server = int((folder / "data" / "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    total = sum(int(ticks) for ticks in read_times(server))  # with children that have ended
    for child in children:
        with contextlib.suppress(OSError):
            total += sum(int(ticks) for ticks in read_times(int(child))[:2])
    return total / TICKS


def read_times(process: int) -> list[str]:
    """Return the user and system time of a process and of its ended children, in ticks (man 5 proc)."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:15]


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__.partition("\n")[0])
    parser.add_argument("--measure", action="store_true", help="measure the costs here (one minute)")
    parser.add_argument("--cores", type=int, default=16, help="processor cores of the server (16)")
    options = parser.parse_args(arguments)
    costs = measure() if options.measure else MEASURED
    print(
        f"a commit {costs.commit_s * 1e6:.0f} µs and {costs.row_s * 1e6:.0f} µs a row of the server's time, "
        f"a flush {costs.flush_s * 1000:.1f} ms; {options.cores} cores"
    )
    print("requests/s  workers  rows a commit  cores busy  wait p50 ms  wait p99 ms")
    for rate in RATES:
        workers = max(2, -(-rate // A_WORKER))
        made = simulate(rate, workers, options.cores, costs)
        print(
            f"{rate:>10,}  {workers:>7}  {made.rows_a_commit:>13.1f}  {made.cores:>10.2f}  {made.wait_ms:>11.1f}  "
            f"{made.late_ms:>11.1f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
