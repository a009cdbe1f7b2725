"""Faults of the database and of Redis around two nodes under load: effect on callers, rows and money. Three of ten
requests are agents', with prompts of 200 KB.

PostgreSQL with streaming replication, PgBouncer, and Redis with a Sentinel are real. `make drills`; docs/reliability.md
has the table, which WRITE_GOLDENS=1 writes.
"""

import os
import re
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import gevent
import httpx
import psycopg
import pytest
from fakes.openai import FakeOpenAI
from support.fleet import Fleet, probe, wait_until
from support.gateways import ROOT
from support.pgbouncer import PgBouncer
from support.postgres_servers import PostgresServer, open_folder
from support.redis_servers import HOST, MASTER, PASSWORD, RedisServers, wait_for
from support.spending import SECRETS

pytestmark = pytest.mark.soak

PAGE = ROOT / "docs" / "reliability.md"
MARKS = re.compile(r"(<!-- database drills -->\n).*?(<!-- end of database drills -->)", re.S)
BODY = {"model": "openai/gpt-4.1", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 20}
# Agents send their whole session with each turn, and a high max_tokens.
SESSION = "def area(width: int, height: int) -> int:\n    return width * height\n\n\n" * 3000
AGENT_BODY = BODY | {"messages": [{"role": "user", "content": SESSION[:200_000]}], "max_tokens": 32_000}
AGENT_TURNS = (0, 3, 6)  # of ten requests
AWAY_S = 20.0
CALLERS = 8
DRILLS = 6
PAUSE_S = 0.1
AGENT_PAUSE_S = 1.0  # an agent runs its tools between two turns
COLUMNS = (
    "Drill",
    "Success during, after",
    "p50 and longest before → during",
    "Other answers",
    "Rows and money",
    "Back",
)
HEAD = f"| {' | '.join(COLUMNS)} |"


@dataclass
class RequestResult:
    began: float
    took_s: float
    error: str
    log_id: str = ""


class Load:
    """Requests of a constant number of callers."""

    def __init__(self) -> None:
        self.results: list[RequestResult] = []

    def between(self, start: float, end: float) -> list[RequestResult]:
        return [one for one in self.results if start <= one.began < end]

    def run(self, address: str, key: str, stop: list[bool]) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        with httpx.Client(timeout=60) as http:
            while not stop:
                body = AGENT_BODY if len(self.results) % 10 in AGENT_TURNS else BODY
                began = time.monotonic()
                error = log_id = ""
                try:
                    answer = http.post(f"{address}/v1/chat/completions", json=body, headers=headers)
                    if answer.status_code == 200:
                        log_id = answer.json()["metadata"]["log_id"]
                    else:
                        error = str(answer.status_code)
                except httpx.HTTPError as failure:
                    error = type(failure).__name__
                self.results.append(RequestResult(began, time.monotonic() - began, error, log_id))
                gevent.sleep(AGENT_PAUSE_S if body is AGENT_BODY else PAUSE_S)


@contextmanager
def load_on(fleet: Fleet) -> Iterator[Load]:
    load = Load()
    stop: list[bool] = []
    running = [gevent.spawn(load.run, fleet.address, fleet.key, stop) for _ in range(CALLERS)]
    try:
        yield load
    finally:
        stop.append(True)
        gevent.joinall(running, timeout=120)


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    lines: list[str] = []
    yield lines
    text = "\n".join([HEAD, "|---|---|---|---|---|---|", *lines])
    print("\n" + text)
    if os.environ.get("WRITE_GOLDENS") and len(lines) == DRILLS:
        page = PAGE.read_text()
        PAGE.write_text(MARKS.sub(lambda found: f"{found[1]}\n{text}\n\n{found[2]}", page))


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as place:
        yield place


@pytest.fixture
def server(folder: Path) -> Iterator[PostgresServer]:
    new_server = PostgresServer(folder).create()
    yield new_server
    new_server.stop()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., tuple[Fleet, FakeOpenAI]]]:
    """A factory of fleets on a database URL; the provider counts its calls."""
    fleets: list[Fleet] = []
    with FakeOpenAI() as upstream:

        def make(url: str, **more: str) -> tuple[Fleet, FakeOpenAI]:
            settings = {
                "DATABASE_URL": url,
                "GATEWAY_BOOTSTRAP_CREDITS_USD": "1000",
                "LLM_OPENAI_BASE_URL": upstream.url,
                "LLM_OPENAI_API_KEY": "x",
                "GATEWAY_ALLOW_PRIVATE_UPSTREAMS": "true",
            }
            fleets.append(Fleet(tmp_path, 2, 1, **SECRETS, **settings, **more))
            return fleets[-1], upstream

        yield make
        for fleet in fleets:
            fleet.stop()


def share(results: list[RequestResult]) -> str:
    good = sum(not one.error for one in results)
    return f"{100 * good / len(results):.1f} % of {len(results)}" if results else "none"


def times(results: list[RequestResult]) -> str:
    took = [one.took_s * 1000 for one in results if not one.error]
    return f"{statistics.median(took):.0f} and {max(took):.0f} ms" if took else "none"


def others(results: list[RequestResult]) -> str:
    counts = Counter(one.error for one in results if one.error)
    return ", ".join(f"{count} × {error}" for error, count in counts.items()) or "—"


def check_books(url: str, fleet: Fleet, load: Load, upstream: FakeOpenAI) -> str:
    """Each whole answer has one row, no call has two, and `doctor` agrees. A killed worker may have recorded a call
    that it did not send any more: its row is estimated."""

    def read_rows() -> list[tuple[str, str]]:
        with psycopg.connect(url) as connection:
            return connection.execute(
                "SELECT encode(request, 'hex'), finish FROM usage WHERE provider = 'openai'"
            ).fetchall()

    good = {one.log_id for one in load.results if not one.error}
    wait_until(lambda: good <= {ident for ident, _ in read_rows()}, 120)
    rows = read_rows()
    settled = [ident for ident, finish in rows if finish != "interrupted"]
    interrupted = len(rows) - len(settled)
    assert len({ident for ident, _ in rows}) == len(rows)
    assert len(settled) <= len(upstream.calls)
    assert "The books agree" in fleet.nodes[0].manage("doctor")
    more = f" ({interrupted} estimated)" if interrupted else ""
    return f"{len(good)} answers, {len(rows)} rows{more}, {len(upstream.calls)} calls; the books agree"


def add_row(table: list[str], name: str, load: Load, fault: tuple[float, float], books: str) -> None:
    before, during = load.between(0, fault[0] - 1), load.between(*fault)
    after = load.between(fault[1], time.monotonic())
    back_s = max((one.began + one.took_s - fault[1] for one in after if one.error), default=0.0)
    calm = load.between(fault[1] + back_s, time.monotonic())
    assert before and not [one for one in before if one.error]
    assert back_s < 30 and calm
    columns = [name, f"{share(during)}, {share(calm)}", f"{times(before)} → {times(during)}", others(during), books]
    table.append(f"| {' | '.join([*columns, f'{back_s:.1f} s'])} |")


def test_known_keys_are_served_while_the_database_is_away(
    server: PostgresServer, start: Callable[..., tuple[Fleet, FakeOpenAI]], table: list[str]
) -> None:
    fleet, upstream = start(server.url, GATEWAY_DATABASE_WHEN_AWAY="serve")
    with load_on(fleet) as load:
        gevent.sleep(5)
        away = time.monotonic()
        server.stop()
        gevent.sleep(AWAY_S / 2)
        notices = [probe(node) for node in fleet.nodes]
        gevent.sleep(AWAY_S / 2)
        back = time.monotonic()
        server.start()
        wait_until(lambda: all(probe(node) == (200, "ready\n") for node in fleet.nodes), 120)
        gevent.sleep(5)
    assert all(status == 200 and "known keys are served" in text for status, text in notices)
    during = load.between(away, back)
    assert sum(not one.error for one in during) >= 0.95 * len(during), others(during)
    books = check_books(server.url, fleet, load, upstream)
    add_row(table, "PostgreSQL down for 20 s, `serve`", load, (away, back), books)


@pytest.mark.parametrize("mode", ["refuse", "serve"])
def test_the_database_is_away_while_a_worker_is_killed(
    server: PostgresServer, start: Callable[..., tuple[Fleet, FakeOpenAI]], table: list[str], mode: str
) -> None:
    fleet, upstream = start(server.url, GATEWAY_DATABASE_WHEN_AWAY=mode)
    with load_on(fleet) as load:
        gevent.sleep(5)
        away = time.monotonic()
        server.stop()
        gevent.sleep(AWAY_S / 2)
        os.kill(fleet.nodes[0].workers()[0], signal.SIGKILL)
        gevent.sleep(AWAY_S / 2)
        back = time.monotonic()
        server.start()
        wait_until(lambda: all(probe(node) == (200, "ready\n") for node in fleet.nodes), 120)
        gevent.sleep(5)
    good = [one for one in load.between(away + 3, away + AWAY_S / 2) if not one.error]
    assert bool(good) is (mode == "serve")
    books = check_books(server.url, fleet, load, upstream)
    add_row(table, f"PostgreSQL down for 20 s, `{mode}`; a worker killed meanwhile", load, (away, back), books)


def test_a_standby_takes_over(
    server: PostgresServer, start: Callable[..., tuple[Fleet, FakeOpenAI]], table: list[str]
) -> None:
    standby = server.start_standby()
    hosts = f"{server.address},{standby.address}"
    url = f"postgresql://postgres@{hosts}/gateway?target_session_attrs=read-write"
    try:
        fleet, upstream = start(url)
        with load_on(fleet) as load:
            gevent.sleep(5)
            away = time.monotonic()
            server.crash()
            standby.promote()
            back = time.monotonic()
            wait_until(lambda: all(probe(node) == (200, "ready\n") for node in fleet.nodes), 120)
            gevent.sleep(5)
        books = check_books(standby.url, fleet, load, upstream)
        add_row(table, "The primary crashes, a synchronous standby takes over", load, (away, back), books)
    finally:
        standby.stop()


def test_a_pooler_restarts(
    server: PostgresServer, start: Callable[..., tuple[Fleet, FakeOpenAI]], table: list[str]
) -> None:
    pooler = PgBouncer(server.folder, server)
    try:
        fleet, upstream = start(pooler.url)
        with load_on(fleet) as load:
            gevent.sleep(5)
            away = time.monotonic()
            for _ in range(5):
                pooler.restart()
                gevent.sleep(1)
            back = time.monotonic()
            gevent.sleep(5)
        books = check_books(server.url, fleet, load, upstream)
        name = "PgBouncer in transaction mode restarts five times in five seconds"
        add_row(table, name, load, (away, back), books)
    finally:
        pooler.stop()


def test_the_master_of_redis_crashes_and_a_sentinel_promotes_its_replica(
    server: PostgresServer, start: Callable[..., tuple[Fleet, FakeOpenAI]], table: list[str]
) -> None:
    with ExitStack() as stack:
        servers = RedisServers(stack)
        master, replica, sentinel = servers.start_replicated()
        url = f"redis+sentinel://:{PASSWORD}@{HOST}:{sentinel}/{MASTER}/0"
        fleet, upstream = start(server.url, REDIS_URL=url)
        promoted = servers.client(replica, PASSWORD)
        with load_on(fleet) as load:
            gevent.sleep(5)
            away = time.monotonic()
            servers.processes[master].kill()
            wait_until(lambda: any("Redis is down" in probe(node)[1] for node in fleet.nodes))
            wait_for(lambda: promoted.role()[0] == b"master" and promoted.dbsize())
            wait_until(lambda: all(probe(node) == (200, "ready\n") for node in fleet.nodes))
            back = time.monotonic()
            gevent.sleep(5)
        assert not [one for one in load.results if one.error]
        books = check_books(server.url, fleet, load, upstream)
        name = (
            f"The master of Redis crashes; used again after {back - away:.1f} s, when a Sentinel promoted the replica"
        )
        add_row(table, name, load, (away, back), books)
