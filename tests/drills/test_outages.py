"""Outages around an installation, one after the other: which callers are answered, and what log and health report.

Two nodes of two workers behind nginx, with a real PostgreSQL and a real Redis. `make drills`; docs/reliability.md has
the table, which WRITE_GOLDENS=1 writes.
"""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import gevent
import httpx
import pytest
from support import postgres
from support.breakable_network import Gate
from support.fleet import Fleet, LoadResult, callers, log_line, probe, wait_until
from support.gateways import ROOT, GatewayProcess
from support.spending import SECRETS
from support.two_providers import write_twins

pytestmark = pytest.mark.soak

NOWHERE = "http://127.0.0.1:9/v1"
PAGE = ROOT / "docs" / "reliability.md"
MARKS = re.compile(r"(<!-- drills -->\n).*?(<!-- end of drills -->)", re.S)
STREAMS = 200
UNDER_WAY_S = 1.0  # no plain request takes longer, even on a busy machine
DRILLS = 6
RETRIED_S = 2.0  # nginx counts whole seconds: until it tries a node again that was down
SLOW = {
    "model": "sandbox-template",
    "stream": True,
    "messages": [{"role": "user", "content": "[[sandbox: tokens=100 pace=12]]"}],
}


@dataclass
class Drilled:
    """A row of the table."""

    name: str
    succeeded: str
    failures: str
    log: str
    health: str
    back: str


@pytest.fixture(scope="session")
def table() -> Iterator[list[Drilled]]:
    rows: list[Drilled] = []
    yield rows
    lines = [
        "| Drill | Requests that succeeded | Answers to the others | The log | Health | Back to normal |",
        "|---|---|---|---|---|---|",
        *(f"| {row.name} | {row.succeeded} | {row.failures} | {row.log} | {row.health} | {row.back} |" for row in rows),
    ]
    print("\n" + "\n".join(lines))
    if os.environ.get("WRITE_GOLDENS") and len(rows) == DRILLS:
        text = "\n" + "\n".join(lines) + "\n\n"
        PAGE.write_text(MARKS.sub(lambda found: found[1] + text + found[2], PAGE.read_text()))


@pytest.fixture(scope="module")
def ways(postgres_databases: postgres.Databases, redis_url: str) -> Iterator[tuple[Gate, Gate, dict[str, str]]]:
    """Ways to PostgreSQL and to Redis that can be shut, and the environment that takes them."""
    url = postgres_databases.take()
    parts = urlsplit(url)
    folder = Path(parse_qs(parts.query)["host"][0])
    database = Gate(str(next(folder.glob(".s.PGSQL.*[0-9]")))).open()
    redis = Gate(redis_url.removeprefix("unix://")).open()
    yield (
        database,
        redis,
        {
            "DATABASE_URL": f"postgresql://postgres@127.0.0.1:{database.port}{parts.path}",
            "REDIS_URL": f"redis://127.0.0.1:{redis.port}/0",
            **SECRETS,
        },
    )
    database.shut()
    redis.shut()


@pytest.fixture(scope="module")
def fleet(ways: tuple[Gate, Gate, dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    environment = ways[2] | write_twins(folder / "own", NOWHERE, NOWHERE)
    new_fleet = Fleet(folder, 2, 2, **environment)
    yield new_fleet
    new_fleet.stop()


def calm(load: LoadResult, since: float) -> str:
    """The share of success once the last failure was over."""
    return load.between(since + load.recovered_s(since) + 0.01, time.monotonic()).share


def agree(books: str) -> str:
    assert "The books agree" in books
    return "the books agree"


def summary(load: LoadResult) -> str:
    return ", ".join(f"{count} × {text}" for text, count in load.failures().items()) or "—"


def test_a_broken_catalogue_and_a_killed_worker_on_each_node(fleet: Fleet, table: list[Drilled]) -> None:
    file = Path(fleet.nodes[0].environment["GATEWAY_CATALOGUE_PATH"]) / "providers" / "north.toml"
    good = file.read_text()
    fleet.wait_for_workers(2)
    with callers(fleet.address, fleet.key) as load:
        gevent.sleep(1)
        file.write_text('name = "North"\nprotocol = "telepathy"\n')
        for node in fleet.nodes:
            node.hang_up()
            os.kill(node.workers()[0], signal.SIGKILL)
        wait_until(lambda: all("mistake" in probe(node)[1] for node in fleet.nodes))
        gevent.sleep(3)
        fleet.wait_for_workers(2)
        health = probe(fleet.nodes[0])
        file.write_text(good)
        for node in fleet.nodes:
            node.hang_up()
        back_s = wait_until(lambda: all(probe(node) == (200, "ready\n") for node in fleet.nodes))
        gevent.sleep(1)
    # A killed worker takes along what it was answering at that moment, and no more.
    assert len(load.results) - load.good <= 4, load.failures()
    log_text = log_line(fleet.nodes[0], "telepathy")
    assert health[0] == 200 and "SIGHUP" in log_text
    table.append(
        Drilled(
            "The catalogue is broken, the configuration is read again, and a worker of each node is killed",
            load.share,
            summary(load),
            log_text,
            f"{health[0]}: {'; '.join(health[1].split(chr(10))[:2])}",
            f"{back_s:.1f} s after the file was mended and read again",
        )
    )


def test_the_database_is_away_while_a_worker_dies(
    fleet: Fleet, ways: tuple[Gate, Gate, dict[str, str]], table: list[Drilled]
) -> None:
    fleet.wait_for_workers(2)
    with callers(fleet.address, fleet.key, 8, 0.2) as load:
        gevent.sleep(1 + UNDER_WAY_S)
        away = time.monotonic()
        ways[0].shut()
        for node in fleet.nodes:
            os.kill(node.workers()[0], signal.SIGKILL)
        wait_until(lambda: all(probe(node)[0] == 503 for node in fleet.nodes))
        health, alive = probe(fleet.nodes[0]), probe(fleet.nodes[0], "/livez")
        gevent.sleep(14)  # longer than an answer waits for its settlement
        back = time.monotonic()
        ways[0].open()
        wait_until(lambda: all(probe(node)[0] == 200 for node in fleet.nodes))
        gevent.sleep(6)
    fleet.wait_for_workers(2)
    during = load.between(away, back)
    after = load.between(back, time.monotonic())
    assert not {text for text in during.failures() if text.startswith(("401", "403", "404"))}
    # Some requests that were under way at that moment could not be settled any more.
    before = load.between(0, away - UNDER_WAY_S)
    assert before.results and before.failures() == {}
    assert after.recovered_s(back) < 8, after.failures()
    assert alive == (200, "ok\n")
    table.append(
        Drilled(
            "The database is down while a worker of each node dies",
            f"{during.share} while it was away, {calm(after, back)} after",
            summary(during),
            log_line(fleet.nodes[0], "database is unavailable|database is down"),
            f"/livez 200; /readyz {health[0]}: {health[1].strip()}",
            f"{after.recovered_s(back):.1f} s after it was back",
        )
    )


def test_redis_is_away(fleet: Fleet, ways: tuple[Gate, Gate, dict[str, str]], table: list[Drilled]) -> None:
    with callers(fleet.address, fleet.key) as load:
        gevent.sleep(1)
        ways[1].shut()
        wait_until(lambda: all("Redis is down" in probe(node)[1] for node in fleet.nodes))
        health = probe(fleet.nodes[0])
        report = probe(fleet.nodes[0], "/")
        gevent.sleep(3)
        ways[1].open()
        back_s = wait_until(lambda: all(probe(node) == (200, "ready\n") for node in fleet.nodes))
    assert load.failures() == {} and health[0] == 200 and report[0] == 503
    table.append(
        Drilled(
            "Redis is down",
            load.share,
            "—",
            log_line(fleet.nodes[0], "[Rr]edis") or "—",
            f"/readyz {health[0]}: {'; '.join(health[1].split(chr(10))[:2])}; / {report[0]}",
            f"{back_s:.1f} s after it was back",
        )
    )


def test_a_rolling_restart_under_open_streams(fleet: Fleet, table: list[Drilled]) -> None:
    ends: list[str] = []
    opened: list[bool] = []

    def stream() -> None:
        last = ""
        with httpx.Client(timeout=60) as http:
            headers = {"Authorization": f"Bearer {fleet.key}"}
            try:
                with http.stream("POST", f"{fleet.address}/v1/chat/completions", json=SLOW, headers=headers) as answer:
                    opened.append(True)
                    for line in answer.iter_lines():
                        last = line or last
            except httpx.HTTPError as error:
                last = repr(error)
        ends.append(last)

    fleet.wait_for_workers(2)
    streams = [gevent.spawn(stream) for _ in range(STREAMS)]
    wait_until(lambda: len(opened) == STREAMS)
    draining = (0, "")
    began = time.monotonic()
    with callers(fleet.address, fleet.key, 2) as load:
        for node in fleet.nodes:
            node.terminate()
            wait_until(lambda node=node: probe(node)[0] != 200)
            draining = max(draining, probe(node))
            assert node.wait(60) == 0
            node.start()
            gevent.sleep(RETRIED_S)
        fleet.wait_for_workers(2)
        took = time.monotonic() - began
        gevent.sleep(1)
    gevent.joinall(streams, timeout=60)
    whole = ends.count("data: [DONE]")
    assert whole == STREAMS, [end for end in ends if end != "data: [DONE]"][:3]
    assert load.failures() == {}
    table.append(
        Drilled(
            f"Both nodes are restarted in turn under {STREAMS} open streams",
            f"{whole} of {STREAMS} streams whole; {load.share} new requests",
            "—",
            log_line(fleet.nodes[0], "shuts down after its"),
            f"/readyz {draining[0]}: {draining[1].strip()}"
            if draining[0]
            else "/readyz 503: draining, then nothing listens",
            f"{took:.0f} s for both",
        )
    )


def git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def steps_at(commit: str) -> set[str]:
    """The migrations of a commit, each with its content's hash."""
    return {line.split(maxsplit=2)[2] for line in git("ls-tree", "-r", commit, "migrations").splitlines()}


def find_version_before() -> str:
    """Return the newest commit that lacks some of today's migrations and has no others; shared ones are unchanged."""
    today = steps_at("HEAD")
    for commit in git("log", "-60", "--format=%H", "--", "migrations").split():
        if steps_at(f"{commit}^") < today:
            return f"{commit}^"
    pytest.skip("there is no history to take the version before from")


def test_the_version_before_serves_beside_this_one(
    fleet: Fleet, ways: tuple[Gate, Gate, dict[str, str]], table: list[Drilled], tmp_path: Path
) -> None:
    """The code before the newest migration takes the place of one node, on the migrated database."""
    tree = tmp_path / "before"
    before = os.environ.get("DRILL_PREVIOUS") or find_version_before()
    git("worktree", "add", "--detach", str(tree), before)
    node = fleet.nodes[1]
    try:
        with callers(fleet.address, fleet.key) as load:
            node.terminate()
            assert node.wait(60) == 0
            node.root = tree
            node.start()
            gevent.sleep(4)
            beside = probe(node)
            node.terminate()
            assert node.wait(60) == 0
            node.root = ROOT
            node.start()
            gevent.sleep(1)
    finally:
        node.root = ROOT
        git("worktree", "remove", "--force", str(tree))
    assert load.failures() == {} and beside[0] == 200
    books = fleet.nodes[0].manage("doctor")
    table.append(
        Drilled(
            "The version before (before the newest migration) serves beside this one on the migrated database",
            load.share,
            "—",
            log_line(node, "Booting worker"),
            f"/readyz {beside[0]} at the version before",
            agree(books),
        )
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a file system of its own cannot be mounted here (it takes root)")
    yield place
    subprocess.run(["umount", "-l", str(place)], capture_output=True)


def test_the_disk_is_full(small_disk: Path, table: list[Drilled]) -> None:
    node = GatewayProcess(small_disk / "data", 2)
    node._log = small_disk.parent / "node.log"
    filler = small_disk / "filler"
    try:
        node.start()
        with callers(node.address, node.key, 8, 0.2) as load:
            gevent.sleep(1)
            full = time.monotonic()
            with filler.open("wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(1 << 20))
                except OSError:
                    pass
            wait_until(lambda: probe(node)[0] == 503)
            health = probe(node)
            # A worker that dies now comes back, and waits.
            os.kill(node.workers()[0], signal.SIGKILL)
            gevent.sleep(12)
            free = time.monotonic()
            filler.unlink()
            wait_until(lambda: probe(node) == (200, "ready\n"))
            gevent.sleep(5)
        wait_until(lambda: len(node.workers()) == 2)
        during = load.between(full, free)
        after = load.between(free, time.monotonic())
        assert "full" in health[1] and after.recovered_s(free) < 8, after.failures()
        assert not {text for text in during.failures() if text.startswith("4")}
        books = node.manage("doctor")
        table.append(
            Drilled(
                "The disk of a node on SQLite is full, and a worker dies",
                f"{during.share} while it was full, {calm(after, free)} after",
                summary(during),
                log_line(node, "database is unavailable") or "—",
                f"/readyz {health[0]}: {'; '.join(health[1].strip().splitlines())}",
                f"{after.recovered_s(free):.1f} s after there was room; {agree(books)}",
            )
        )
    finally:
        filler.unlink(missing_ok=True)
        node.stop()
