"""The bytes that a request leaves in the database and in its log: `python -m bench.storage [--requests 2000]`.

A gateway with an empty database answers requests of each kind, on a new PostgreSQL server with default settings and on
SQLite. Bytes of tables and indexes are those of their pages. PostgreSQL's log is read record by record
(pg_walinspect): "changes" are the records without full images of pages, which the server adds to the first change of a
page after a checkpoint; a checkpoint precedes each kind, so that they are the worst case of as many requests. SQLite
writes whole pages, which the kernel counts (`wchar` of /proc/PID/io). What an idle gateway writes is subtracted.
"""

import argparse
import contextlib
import http.client
import json
import queue
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from bench.pairs import import_from_tests, use_database
from bench.processes import RIG_CORE, BenchError, refuse_taken, running, tree, wait_for_port
from bench.run import BUILD, build
from bench.targets import KEY, MOCK_PORTS, PATH, Target, clean_environment, start_gateway

PROVIDERS = ("cerebras", "deepinfra", "fireworks", "groq", "together-ai")  # of the model with several candidates
SHARED_MODEL = "gpt-oss-120b"
MODEL = "openai/gpt-4o-mini"
SESSIONS = 20
SETTLE_S = 3.0
IDLE_S = 6.0
SHOWN_BYTES = 4  # a table with less of a request is not listed
# Tables that grow with hours and workers, and those of the server, which do not grow with requests.
OTHER_TABLES = ("rollup", "document", "worker", "leader", "health_delta", "migration", "pg_")

SIZES = """
SELECT COALESCE(pg_partition_root(t.oid)::regclass::text, t.relname), SUM(pg_relation_size(t.oid)),
    SUM(pg_indexes_size(t.oid)), SUM(COALESCE(pg_total_relation_size(NULLIF(t.reltoastrelid, 0)), 0))
FROM pg_class t WHERE t.relkind = 'r' AND t.relnamespace = 'public'::regnamespace GROUP BY 1
"""
# A record counts for the table of its first block; records without a block are those of commits and of the server.
LOG = """
SELECT COALESCE(pg_partition_root(COALESCE(i.indrelid, o.oid, c.oid))::regclass::text,
        COALESCE(i.indrelid, o.oid, c.oid)::regclass::text, 'commits and server'),
    SUM(r.record_length - r.fpi_length), SUM(r.fpi_length)
FROM pg_get_wal_records_info(%s, %s) r
LEFT JOIN (SELECT DISTINCT ON (start_lsn) start_lsn, relfilenode FROM pg_get_wal_block_info(%s, %s, false)
    ORDER BY start_lsn, block_id) b ON b.start_lsn = r.start_lsn
LEFT JOIN pg_class c ON pg_relation_filenode(c.oid) = b.relfilenode
LEFT JOIN pg_index i ON i.indexrelid = c.oid
LEFT JOIN pg_class o ON o.reltoastrelid = c.oid
GROUP BY 1
"""
PAGES = """SELECT m.tbl_name, SUM(CASE WHEN m.type = 'table' THEN s.pgsize ELSE 0 END),
    SUM(CASE WHEN m.type = 'index' THEN s.pgsize ELSE 0 END)
FROM dbstat s JOIN sqlite_master m ON m.name = s.name GROUP BY m.tbl_name"""


class Kind(NamedTuple):
    """A kind of requests: how many run at once, model, further members of the body, and headers of which "{}" is the
    session. `team`: their member belongs to a team with a limit."""

    name: str
    at_once: int = 1
    model: str = MODEL
    body: Mapping[str, object] = {}
    headers: Mapping[str, str] = {}
    team: bool = False


STREAM: dict[str, object] = {"stream": True, "stream_options": {"include_usage": True}}
SESSION = {"x-session-id": "{}"}
KINDS = {
    "plain": Kind("plain, one at a time"),
    "shared": Kind("plain, 16 at once", 16),
    "stream": Kind("streamed, one at a time", body=STREAM),
    "session": Kind("sessions of agents, streamed, 8 at once", 8, body=STREAM, headers=SESSION),
    "candidates": Kind("the same, five providers", 8, SHARED_MODEL, STREAM, SESSION),
    "team": Kind("the same, and a team with a limit", 8, SHARED_MODEL, STREAM, SESSION, team=True),
}


class Table(NamedTuple):
    """Bytes of a table: its rows, indexes, values beside the rows (TOAST), and its log without and with images."""

    rows: float = 0
    indexes: float = 0
    beside: float = 0
    changes: float = 0
    images: float = 0

    @property
    def stored(self) -> float:
        return self.rows + self.indexes + self.beside

    def minus(self, other: "Table", factor: float = 1.0) -> "Table":
        return Table(*(own - factor * its for own, its in zip(self, other, strict=True)))


Tables = dict[str, Table]
Look = Callable[[], "Snapshot"]


class Snapshot(NamedTuple):
    """The store at a moment, by the monotonic clock."""

    at: float
    tables: Tables


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.storage", description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=2000, help="requests of each kind (2000)")
    parser.add_argument("--store", choices=("postgresql", "sqlite"), help="one of the stores")
    parser.add_argument("--only", choices=KINDS, action="append", help="one of the kinds, may be repeated")
    parser.add_argument("--port", type=int, default=19_800, help="first of the ports to use (19800)")
    parser.add_argument("--json", action="store_true", help="print each table of each kind as JSON")
    options = parser.parse_args(arguments)
    try:
        build()
        for store in [options.store] if options.store else ["postgresql", "sqlite"]:
            found = {}
            for name in options.only or KINDS:
                found[name] = measure(store, KINDS[name], options.requests, options.port)
            if options.json:
                shown = {kind: {name: table._asdict() for name, table in one.items()} for kind, one in found.items()}
                print(json.dumps({store: shown}))
            else:
                report(store, found)
    except BenchError as error:
        print(f"storage: {error}", file=sys.stderr)
        return 1
    return 0


def measure(store: str, kind: Kind, requests: int, port: int) -> Tables:
    """Return what a request of this kind adds to each table."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        for taken in (*range(port, port + MOCK_PORTS), port + MOCK_PORTS):
            refuse_taken(taken)
        mock = stack.enter_context(running("mock", [str(BUILD / "mock"), str(port)], RIG_CORE, folder))
        wait_for_port(mock, port)
        more = providers_at(port)
        if store == "postgresql":
            servers = import_from_tests("servers")
            url = stack.enter_context(servers.run_postgres(servers.DEFAULTS))
            more |= use_database(url)
        gateway = stack.enter_context(start_gateway(port + MOCK_PORTS, port, folder, more))
        if kind.team:
            join_team(folder, gateway, more)
        send(gateway, kind, SESSIONS)  # what only the first requests write is no cost of the others
        if store == "postgresql":
            look = stack.enter_context(watch_postgresql(url))
        else:
            look = watch_sqlite(folder / "data" / "gateway.db", gateway)
        time.sleep(SETTLE_S)
        first = look()
        time.sleep(IDLE_S)
        before = look()
        send(gateway, kind, requests)
        time.sleep(SETTLE_S)
        after = look()
    # The images of the idle time follow its own checkpoint: those of the requests' time are no multiple of them.
    idle = {
        name: table._replace(images=0) if store == "postgresql" else table
        for name, table in difference(before, first).items()
    }
    share = (after.at - before.at) / (before.at - first.at)
    added = difference(after, before)
    return {
        name: Table(*(value / requests for value in table.minus(idle.get(name, Table()), share)))
        for name, table in added.items()
        if not name.startswith(OTHER_TABLES)
    }


def difference(after: Snapshot, before: Snapshot) -> Tables:
    return {name: table.minus(before.tables.get(name, Table())) for name, table in after.tables.items()}


def providers_at(port: int) -> dict[str, str]:
    """Return the variables by which several providers have a key, and the address of the mock."""
    found = {}
    for name in PROVIDERS:
        variable = f"LLM_{name.upper().replace('-', '_')}"
        found |= {f"{variable}_BASE_URL": f"http://127.0.0.1:{port}/v1", f"{variable}_API_KEY": "x"}
    return found


def join_team(folder: Path, gateway: Target, more: Mapping[str, str]) -> None:
    """Give the member of the key a team with a limit."""
    environment = clean_environment() | {
        "GATEWAY_DATA_DIR": str(folder / "data"),
        "PORT": str(gateway.port),
        "GATEWAY_BOOTSTRAP_API_KEY": KEY,
        **more,
    }

    def run(*words: str) -> Any:
        command = [sys.executable, "-m", "gateway.operator.command", *words, "--json"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise BenchError(f"{' '.join(words)}: {done.stderr[-500:]}")
        return json.loads(done.stdout)

    organization = run("organizations", "list")[0]["id"]
    team = run("teams", "create", organization, "bench")["id"]
    for member in run("members", "list"):
        run("teams", "add", team, member["id"])
    run("limits", "set", team, "--total", "100000")
    time.sleep(1.0)  # every worker has read it then


def send(gateway: Target, kind: Kind, requests: int) -> None:
    """Send requests, `kind.at_once` at a time. BenchError for an answer that is not good."""
    numbers: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(requests):
        numbers.put(number)
    sessions = [str(uuid.UUID(int=(number + 1) << 64)) for number in range(SESSIONS)]
    mistakes: list[str] = []

    def work() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
        with contextlib.closing(connection), contextlib.suppress(queue.Empty):
            while not mistakes:
                number = numbers.get_nowait()
                text = f"Say something about the number {number}, in a sentence or two."
                body = {"model": kind.model, "messages": [{"role": "user", "content": text}], **kind.body}
                own = {name: value.format(sessions[number % SESSIONS]) for name, value in kind.headers.items()}
                headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json", **own}
                connection.request("POST", PATH, json.dumps(body), headers)
                answer = connection.getresponse()
                content = answer.read()
                if answer.status != 200:
                    mistakes.append(f"{kind.name}: {answer.status} {content[:300].decode(errors='replace')}")

    threads = [threading.Thread(target=work) for _ in range(kind.at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if mistakes:
        raise BenchError(mistakes[0])


@contextlib.contextmanager
def watch_postgresql(url: str) -> Iterator[Look]:
    """Yield a function that looks at the server. The log is counted from the look before."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
        log: dict[str, tuple[float, float]] = {}
        place = [""]

        def look() -> Snapshot:
            at = time.monotonic()
            connection.execute("SELECT txid_current()")  # its flush ends the log of all before
            end = connection.execute("SELECT pg_current_wal_flush_lsn()").fetchone()[0]
            if place[0]:
                for name, changes, images in connection.execute(LOG, (place[0], end) * 2).fetchall():
                    before = log.get(name, (0.0, 0.0))
                    log[name] = (before[0] + float(changes), before[1] + float(images))
            sizes = connection.execute(SIZES).fetchall()
            connection.execute("CHECKPOINT")
            place[0] = connection.execute("SELECT pg_current_wal_flush_lsn()").fetchone()[0]
            tables = {name: Table(float(rows), float(own), float(more)) for name, rows, own, more in sizes}
            for name, (changes, images) in log.items():
                tables[name] = tables.get(name, Table())._replace(changes=changes, images=images)
            return Snapshot(at, tables)

        yield look


def watch_sqlite(path: Path, gateway: Target) -> Look:
    """Return a function that looks at the file."""

    def look() -> Snapshot:
        at = time.monotonic()
        with contextlib.closing(sqlite3.connect(path)) as database:
            found = database.execute(PAGES).fetchall()
        tables = {name: Table(rows, indexes) for name, rows, indexes in found}
        return Snapshot(at, tables | {"all writes": Table(images=written_bytes(gateway))})

    return look


def written_bytes(gateway: Target) -> int:
    """Return what the gateway's processes have written to files."""
    if gateway.process is None:
        return 0
    total = 0
    for pid in tree(gateway.process.pid):
        with contextlib.suppress(OSError):
            fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
            total += int(fields["wchar"])
    return total


def report(store: str, found: Mapping[str, Tables]) -> None:
    """Print a table of the kinds, and the tables of each."""
    print(f"\n| {store}, bytes a request | rows | indexes | stored | log: changes | log: images of pages | by table |")
    print("|---|---:|---:|---:|---:|---:|---|")
    for name, tables in found.items():
        total = Table(*(sum(values) for values in zip(*tables.values(), strict=True)))
        parts = sorted(tables.items(), key=lambda item: -(item[1].stored + item[1].changes))
        listed = [
            f"{table} {part.stored:,.0f} + {part.changes:,.0f} + {part.images:,.0f}"
            for table, part in parts
            if max(part) >= SHOWN_BYTES
        ]
        figures = (total.rows + total.beside, total.indexes, total.stored, total.changes, total.images)
        print(
            f"| {KINDS[name].name} | {' | '.join(f'{one:,.0f}' for one in figures)} | {'; '.join(listed)} |", flush=True
        )


if __name__ == "__main__":
    sys.exit(main())
