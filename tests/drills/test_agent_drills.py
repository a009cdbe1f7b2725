"""Faults of 20 s under the traffic of 40 agents: three of ten prompts are 200 KB.

Two nodes behind the nginx of `deploy/`, a real PostgreSQL and a real Redis. Callers do what the vendors' SDKs do: two
further attempts after a 429, a 5xx or a lost connection. `make drills`; docs/reliability.md has the table, of which
WRITE_GOLDENS=1 writes the rows that ran.
"""

import os
import re
import shutil
import signal
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import gevent
import httpx
import pytest
from fakes.openai import Answer, FakeOpenAI
from support.fleet import Fleet, probe, wait_until
from support.gateways import ROOT
from support.postgres_servers import PostgresServer, open_folder
from support.redis_servers import PASSWORD, RedisServers
from support.spending import SECRETS
from support.two_providers import write_twins

pytestmark = pytest.mark.soak

PAGE = ROOT / "docs" / "reliability.md"
MARKS = re.compile(r"(<!-- agent drills -->\n)(.*?)(<!-- end of agent drills -->)", re.S)
COLUMNS = (
    "Fault of 20 s",
    "Served at once",
    "Served after retries",
    "p50 and longest",
    "Other answers",
    "Books",
    "Back",
)
AGENTS = 40
PAUSE_S = 1.0  # an agent runs its tools between two turns
FAULT_S = 20.0
CALM_S = 4.0
RETRIES = 2  # of the vendors' SDKs
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 8.0
SESSION = "def area(width: int, height: int) -> int:\n    return width * height\n\n\n" * 3000
SMALL = {"model": "twin", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 20}
LARGE = SMALL | {"messages": [{"role": "user", "content": SESSION[:200_000]}], "max_tokens": 8_000}
LARGE_TURNS = (0, 3, 6)  # of ten
HANG = Answer("Too late.", silence_s=60)
# A module that Python imports at its start: it moves the clock by the seconds in a file.
SHIFTED_CLOCK = """import time
SHIFT = {path!r}
real, real_ns = time.time, time.time_ns


def shift():
    try:
        with open(SHIFT) as file:
            return int(file.read() or 0)
    except OSError:
        return 0


time.time = lambda: real() + shift()
time.time_ns = lambda: real_ns() + shift() * 1_000_000_000
"""


class Turn(NamedTuple):
    """A request of an agent with its retries; `error` is that of the last attempt, `first` that of the first one."""

    began: float
    took_s: float
    first: str
    error: str


class Agents:
    """Agents in a loop: a streamed request, then a pause."""

    def __init__(self, fleet: Fleet) -> None:
        self.turns: list[Turn] = []
        self._fleet = fleet
        self._stop: list[bool] = []
        self._count = 0
        self._running = [gevent.spawn(self._run, number) for number in range(AGENTS)]

    def stop(self) -> None:
        self._stop.append(True)
        gevent.joinall(self._running, timeout=120)

    def between(self, start: float, end: float) -> list[Turn]:
        return [turn for turn in self.turns if start <= turn.began < end]

    def _run(self, number: int) -> None:
        gevent.sleep(PAUSE_S * number / AGENTS)
        with httpx.Client(timeout=60, headers={"Authorization": f"Bearer {self._fleet.key}"}) as http:
            while not self._stop:
                self._count += 1
                body = LARGE if self._count % 10 in LARGE_TURNS else SMALL
                self.turns.append(self._take_turn(http, body))
                gevent.sleep(PAUSE_S)

    def _take_turn(self, http: httpx.Client, body: dict) -> Turn:
        began = time.monotonic()
        first = ""
        for attempt in range(RETRIES + 1):
            error, wait_s = self._send(http, body)
            if attempt == 0:
                first = error
            if not error or attempt == RETRIES or error[:3] in ("400", "401", "402", "403", "404"):
                break
            gevent.sleep(wait_s or min(FIRST_WAIT_S * 2**attempt, LONGEST_WAIT_S))
        return Turn(began, time.monotonic() - began, first, error)

    def _send(self, http: httpx.Client, body: dict) -> tuple[str, float]:
        """Return the error, "" for a whole answer, and the seconds of Retry-After."""
        try:
            address = f"{self._fleet.address}/v1/chat/completions"
            with http.stream("POST", address, json={**body, "stream": True}) as answer:
                text = answer.read().decode()
        except httpx.HTTPError as failure:
            return type(failure).__name__, 0.0
        if answer.status_code != 200:
            return str(answer.status_code), float(answer.headers.get("retry-after", 0))
        return ("" if text.rstrip().endswith("data: [DONE]") and "Hello." in text else "a broken stream"), 0.0


Table = dict[str, str]


@pytest.fixture(scope="module")
def table() -> Iterator[Table]:
    """Rows by their first column; those that did not run stay in the document as they are."""
    rows: Table = {}
    yield rows
    print("\n" + "\n".join(rows.values()))
    if os.environ.get("WRITE_GOLDENS"):
        PAGE.write_text(MARKS.sub(lambda found: found[1] + _merge(found[2], rows) + found[3], PAGE.read_text()))


def _merge(text: str, rows: Table) -> str:
    known = {line.split(" | ")[0].removeprefix("| "): line for line in text.splitlines()[3:] if line}
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS), *(known | rows).values()]
    return "\n" + "\n".join(lines) + "\n\n"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with open_folder() as folder:
        new_server = PostgresServer(folder).create()
        yield new_server
        new_server.stop()


@pytest.fixture
def north() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as fake:
        yield fake


@pytest.fixture
def south() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as fake:
        yield fake


Start = Callable[..., Fleet]


@pytest.fixture
def start(tmp_path: Path, server: PostgresServer, north: FakeOpenAI, south: FakeOpenAI) -> Iterator[Start]:
    """A factory of fleets of two nodes with one worker each and two providers."""
    fleets: list[Fleet] = []
    twins = write_twins(tmp_path / "catalogue", north.url, south.url)

    def make(workers: int = 1, **more: str) -> Fleet:
        settings = {"DATABASE_URL": server.url, "GATEWAY_BOOTSTRAP_CREDITS_USD": "1000", **twins, **SECRETS, **more}
        fleets.append(Fleet(tmp_path, 2, workers, **settings))
        return fleets[-1]

    yield make
    for fleet in fleets:
        fleet.stop()


def count_share(turns: list[Turn], name: str) -> float:
    return sum(not getattr(turn, name) for turn in turns) / len(turns)


def agrees(fleet: Fleet) -> bool:
    try:
        return "The books agree" in fleet.nodes[-1].manage("doctor")
    except AssertionError as differs:
        print(differs)
        return False


def drill(
    fleet: Fleet,
    table: Table,
    name: str,
    begin: Callable[[], object],
    end: Callable[[], object],
    least: float = 0.95,
    calm_s: float = CALM_S,
) -> list[Turn]:
    """Run the agents with a fault between `begin` and `end`; write its row and return the turns during the fault."""
    agents = Agents(fleet)
    try:
        gevent.sleep(calm_s)
        fault = time.monotonic()
        begin()
        gevent.sleep(max(0.0, fault + FAULT_S - time.monotonic()))
        over = time.monotonic()
        end()
        wait_until(lambda: all(probe(node) == (200, "ready\n") for node in fleet.nodes), 120)
        gevent.sleep(CALM_S)
    finally:
        agents.stop()
    turns = agents.between(fault, over)
    after = agents.between(over, time.monotonic())
    back_s = max((turn.began + turn.took_s - over for turn in after if turn.error), default=0.0)
    took = [turn.took_s for turn in turns if not turn.error]
    errors = Counter(turn.error for turn in turns if turn.error)
    books_s = wait_until(lambda: agrees(fleet), 60)  # rows that waited for the database are summed up in the background
    print(f"the books agree after {books_s:.0f} s")
    columns = [
        name,
        f"{count_share(turns, 'first'):.1%} of {len(turns)}".replace("%", " %"),
        f"{count_share(turns, 'error'):.1%}".replace("%", " %"),
        f"{statistics.median(took) * 1000:.0f} ms and {max(took):.1f} s" if took else "none",
        ", ".join(f"{count} × {error}" for error, count in errors.items()) or "—",
        "agree",
        f"{back_s:.1f} s",
    ]
    table[name] = f"| {' | '.join(columns)} |"
    print(table[name])
    assert count_share(turns, "error") >= least, errors
    return turns


def test_the_database_is_away_and_known_keys_are_served(start: Start, server: PostgresServer, table: Table) -> None:
    fleet = start(GATEWAY_DATABASE_WHEN_AWAY="serve")
    drill(fleet, table, "The database is away, mode `serve`", server.stop, server.start)


def test_the_database_is_away_and_requests_are_refused(start: Start, server: PostgresServer, table: Table) -> None:
    fleet = start(GATEWAY_DATABASE_WHEN_AWAY="refuse")
    drill(fleet, table, "The database is away, mode `refuse`", server.stop, server.start, least=0.0)


def test_the_database_is_away_and_the_only_worker_of_a_node_is_killed(
    start: Start, server: PostgresServer, table: Table
) -> None:
    fleet = start(GATEWAY_DATABASE_WHEN_AWAY="serve")

    def begin() -> None:
        server.stop()
        gevent.sleep(2)
        os.kill(fleet.nodes[0].workers()[0], signal.SIGKILL)

    name = "The database is away, mode `serve`, and the only worker of one node is killed"
    drill(fleet, table, name, begin, server.start)


def test_redis_is_away(start: Start, table: Table) -> None:
    with ExitStack() as stack:
        servers = RedisServers(stack)
        master = servers.start("--requirepass", PASSWORD)
        fleet = start(REDIS_URL=f"redis://:{PASSWORD}@127.0.0.1:{master}/0")
        process = servers.processes[master]

        def stop() -> None:
            process.send_signal(signal.SIGSTOP)

        def resume() -> None:
            process.send_signal(signal.SIGCONT)

        drill(fleet, table, "Redis does not answer", stop, resume)


@pytest.mark.parametrize("reasons", [False, True], ids=["usual", "reasoning"])
def test_a_provider_hangs(start: Start, north: FakeOpenAI, table: Table, tmp_path: Path, reasons: bool) -> None:
    """The model that reasons was never measured, so that nothing is known from earlier answers."""
    for path in (tmp_path / "catalogue" / "providers").glob("*.toml") if reasons else ():
        path.write_text(path.read_text().replace("reasoning = false", "reasoning = true"))
    fleet = start()
    name = "One of two providers hangs" + (", a model that reasons, never measured" if reasons else "")
    hang = partial(north.script, *[HANG] * 10_000)
    turns = drill(fleet, table, name, hang, north._script.clear, calm_s=0 if reasons else CALM_S)
    assert max(turn.took_s for turn in turns) < 15


def test_the_workers_are_killed(start: Start, table: Table) -> None:
    fleet = start(workers=2)

    def kill() -> None:
        for node in (*fleet.nodes, *fleet.nodes):
            os.kill(node.workers()[0], signal.SIGKILL)
            gevent.sleep(5)

    drill(fleet, table, "A worker is killed every five seconds, four in all", kill, lambda: None)


def test_a_node_is_killed(start: Start, table: Table) -> None:
    fleet = start()
    node = fleet.nodes[0]
    drill(fleet, table, "One of two nodes is killed", node.kill, node.start)


def test_the_clock_of_a_node_jumps(start: Start, table: Table, tmp_path: Path) -> None:
    shift = tmp_path / "shift"
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "sitecustomize.py").write_text(SHIFTED_CLOCK.format(path=str(shift)))
    fleet = start()
    node = fleet.nodes[0]
    node.environment["PYTHONPATH"] = str(tmp_path / "python")
    node.cold = True
    node.terminate()
    assert node.wait(60) == 0
    node.start()
    name = "The clock of one node is two hours fast"
    drill(fleet, table, name, lambda: shift.write_text("7200"), lambda: shift.write_text("0"))


def test_the_disk_of_a_node_is_full(start: Start, table: Table, tmp_path: Path) -> None:
    place = tmp_path / "node0"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a file system of its own cannot be mounted here (it takes root)")
    filler = place / "filler"

    def fill() -> None:
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 20))
            except OSError:
                pass

    try:
        fleet = start()
        drill(fleet, table, "The disk of one node is full", fill, filler.unlink)
        fleet.stop()
    finally:
        subprocess.run(["umount", "-l", str(place)], capture_output=True)
