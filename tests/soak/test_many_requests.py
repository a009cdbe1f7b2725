"""Many requests through two nodes while random workers are killed: the rows are the provider's calls, and the books and
ClickHouse agree. `make kills REQUESTS=1000000` runs a million; the default is 20,000."""

import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest
from support.clickhouse_server import ENGINE, ClickHouseServer, run_clickhouse
from support.gateways import GatewayProcess, Start
from support.marked_calls import MarkedCalls
from support.spending import TOKEN_NUSD, query, reserved_nusd, until

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not shutil.which("cc"), reason="the client and the provider are written in C"),
]

REQUESTS = int(os.environ.get("REQUESTS", "20000"))
KILL_EVERY_S = 10.0
CALLERS = 16
WORKERS = 2
TOKENS = 100  # of each answer
MAX_DURATION_S = 60  # of a request
# Patience at the end for `doctor` and ClickHouse, which read every row: much longer than a million takes.
CHECKED_S = 1800.0
# SQLite is the database of one node, in its data folder.
NODES = {"sqlite": 1, "postgresql": 2}


@pytest.fixture
def mint(tmp_path: Path) -> MarkedCalls:
    return MarkedCalls(tmp_path)


@pytest.fixture
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseServer | None]:
    """ClickHouse, where its engine is installed."""
    if not (ENGINE / "chdb").exists():
        yield None
        return
    with run_clickhouse(tmp_path_factory.mktemp("clickhouse")) as server:
        yield server


def kill_regularly(nodes: list[GatewayProcess], stopping: list[bool], kills: list[int]) -> None:
    """Kill a random worker of a random node every KILL_EVERY_S seconds."""
    chance = random.Random(5)
    while not stopping:
        gevent.sleep(KILL_EVERY_S)
        alive = chance.choice(nodes).workers()
        if alive:
            victim = chance.choice(alive)
            os.kill(victim, signal.SIGKILL)
            kills.append(victim)


def test_rows_are_the_calls_of_the_provider_although_workers_are_killed(
    start: Start, mint: MarkedCalls, clickhouse: ClickHouseServer | None, request: pytest.FixtureRequest
) -> None:
    store = request.node.callspec.params["start"]
    more = {"GATEWAY_TIMEOUT_MS": str(MAX_DURATION_S * 1000)}
    if clickhouse:
        more["GATEWAY_ANALYTICS_CLICKHOUSE_URL"] = clickhouse.url
    nodes = [start(workers=WORKERS, GATEWAY_BOOTSTRAP_CREDITS_USD="1000000", **more) for _ in range(NODES[store])]
    stopping: list[bool] = []
    kills: list[int] = []
    killing = gevent.spawn(kill_regularly, nodes, stopping, kills)
    answers = mint.run(nodes, CALLERS, REQUESTS, TOKENS)
    stopping.append(True)
    killing.join()
    assert until(lambda: all(len(node.workers()) == WORKERS for node in nodes))
    began = time.monotonic()
    # Leases that no file of a node names are returned when no request can be running any more.
    assert until(lambda: reserved_nusd(nodes[0]) == 0, 4 * MAX_DURATION_S), query(nodes[0], "SELECT * FROM lease")
    returned_s = time.monotonic() - began
    rows = query(nodes[0], "SELECT label, finish, cost_nusd FROM usage")
    labels = Counter(label for label, _, _ in rows)
    called = {f"m{number}": count for number, count in enumerate(answers.calls) if count}
    whole = {f"m{number}" for number, arrived in enumerate(answers.whole) if arrived}
    interrupted = {label for label, finish, _ in rows if finish == "interrupted"}
    exact = {label for label, finish, cost in rows if finish == "stop" and cost == TOKENS * TOKEN_NUSD}
    print(
        f"{store}: {REQUESTS} requests in {answers.seconds:.0f} s, longest {answers.longest_ms} ms, "
        f"{len(kills)} kills, {len(whole)} whole, {sum(called.values())} calls, {len(rows)} rows, "
        f"{len(interrupted)} interrupted; nothing reserved after {returned_s:.0f} s"
    )
    assert kills and max(labels.values()) == 1
    assert called.items() <= labels.items()  # each call has exactly one row
    # A row without a call was killed between the record that it starts and its first byte to the provider.
    assert set(labels) - set(called) <= interrupted
    assert whole <= exact
    assert len(whole) >= REQUESTS * 0.9
    assert query(nodes[0], "SELECT count(*) FROM lease WHERE granted_nusd > spent_nusd") == [(0,)]
    assert "The books agree." in nodes[0].manage("doctor", timeout=CHECKED_S)
    if clickhouse:
        total = len(rows), sum(cost for _, _, cost in rows)
        delivered = "SELECT count(), sum(cost_nusd) FROM llmgateway_usage FINAL"
        assert until(lambda: clickhouse.query(delivered) == [list(total)], CHECKED_S), (
            clickhouse.query(delivered),
            total,
        )
