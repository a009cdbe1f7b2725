"""A batch of many lines at a provider's batch API while workers of two nodes are killed: the provider gets every line
once, and every line has one result and is paid once. `make batch-kills NATIVE=1 LINES=50000` runs fifty thousand; the
default is 4,000."""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import gevent
import pytest
from support.batch_provider import BatchProvider
from support.gateways import GatewayProcess, Start
from support.killed_lines import Watch, httpx_of, p99_ms, run_batch
from support.marked_calls import MarkedCalls
from support.postgres_servers import PostgresServer, open_folder
from support.spending import SECRETS, query, reserved_nusd, until, write_mint

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not shutil.which("cc"), reason="the provider of small requests is written in C"),
]

LINES = int(os.environ.get("LINES", "4000"))
KILL_EVERY_S = float(os.environ.get("KILL_EVERY_S", "10"))
NODES = WORKERS = 2
PATIENCE_S = 900 + LINES / 10
MEMORY_GROWTH_MB = 40
RESTARTS = 2
MODEL = "openai/gpt-4o-mini"
INPUT_NUSD, OUTPUT_NUSD = 75, 300  # of a token in a batch: half of the list price
ROWS = "SELECT request, input, output, input_nusd, output_nusd, cost_nusd, extra FROM usage WHERE tags LIKE '%batch%'"


@pytest.fixture
def mint(tmp_path: Path) -> MarkedCalls:
    return MarkedCalls(tmp_path)


def line(number: int) -> bytes:
    body = {"model": MODEL, "max_tokens": 50, "messages": [{"role": "user", "content": f"m{number}"}]}
    return json.dumps({"custom_id": f"m{number}", "url": "/v1/chat/completions", "body": body}).encode()


OPENAI = {"LLM_OPENAI_API_KEY": "sk-upstream", "LLM_OPENAI_USE_RESPONSES_API": "false"}


@pytest.mark.parametrize("start", ["postgresql"], indirect=True)
def test_a_provider_gets_every_line_once_although_workers_are_killed(
    start: Start, mint: MarkedCalls, redis_url: str, tmp_path: Path
) -> None:
    more = {
        "REDIS_URL": redis_url,
        "GATEWAY_FILES_FOLDER": str(tmp_path / "files"),
        "GATEWAY_BOOTSTRAP_CREDITS_USD": "1000000",
    }
    with BatchProvider() as provider, mint.provide(1, 100):
        nodes = [start(workers=WORKERS, LLM_OPENAI_BASE_URL=provider.url, **OPENAI, **more) for _ in range(NODES)]
        watch = Watch(nodes, KILL_EVERY_S)
        alone = watch.probe(10)
        data = b"\n".join(map(line, range(LINES)))
        batch, seconds = run_batch(nodes, watch, data, PATIENCE_S, {"batch": "native"})
        counts = provider.counts()
    beside = watch.waits_s
    states = query(nodes[0], "SELECT state, COUNT(*), SUM(total) FROM provider_batch GROUP BY state")
    print(
        f"{LINES} lines in {seconds:.0f} s, {watch.kills} kills, batches of the provider {states}, "
        f"{sum(counts['accepted'].values())} lines accepted; memory +{watch.growth_mb:.0f} MB; p99 of {len(beside)} "
        f"small requests {p99_ms(beside):.0f} ms, alone {p99_ms(alone):.0f} ms"
    )
    check_lines(nodes[0], batch, counts, LINES)
    assert watch.growth_mb <= MEMORY_GROWTH_MB


def test_a_database_that_restarts_loses_no_line_and_sends_none_twice(mint: MarkedCalls, tmp_path: Path) -> None:
    wanted = 2000
    with open_folder() as folder, BatchProvider() as provider, mint.provide(1, 100):
        server = PostgresServer(folder).create()
        environment = write_mint(tmp_path / "catalogue", mint.url) | SECRETS | OPENAI
        environment |= {"LLM_OPENAI_BASE_URL": provider.url, "GATEWAY_BOOTSTRAP_CREDITS_USD": "1000000"}
        node = GatewayProcess(tmp_path / "node", 2, DATABASE_URL=server.url, **environment)
        try:
            node.start()
            watch = Watch([node], 1e9)  # no worker is killed
            restarts: list[float] = []

            def restart() -> None:
                for _ in range(RESTARTS):
                    gevent.sleep(5)
                    began = time.monotonic()
                    server.crash()
                    gevent.sleep(1)
                    server.start()
                    restarts.append(time.monotonic() - began)

            restarting = gevent.spawn(restart)
            data = b"\n".join(map(line, range(wanted)))
            batch, seconds = run_batch([node], watch, data, PATIENCE_S, {"batch": "native"})
            restarting.get()
            away = sum(restarts)
            print(f"{wanted} lines in {seconds:.0f} s, {len(restarts)} restarts of PostgreSQL in {away:.0f} s")
            assert len(restarts) == RESTARTS
            check_lines(node, batch, provider.counts(), wanted)
        finally:
            node.discard()
            server.stop()


def check_lines(node: GatewayProcess, batch: Any, counts: Any, lines: int) -> None:
    """Check that provider, results, rows and books have every line once, at the price of a batch."""
    output = httpx_of(node, "GET", f"/files/{batch['output_file_id']}/content")
    results = [json.loads(one) for one in output.text.splitlines()]
    rows = query(node, ROWS)
    assert batch["request_counts"] == {"total": lines, "completed": lines, "failed": 0}
    assert [one["custom_id"] for one in results] == [f"m{number}" for number in range(lines)]
    assert counts["direct"] == 0 and counts["accepted"] == {f"m{number}": 1 for number in range(lines)}
    assert {bytes(row[0]).hex() for row in rows} == {one["response"]["request_id"] for one in results}
    assert len(rows) == lines and {json.loads(row[6])["tier"] for row in rows} == {"batch"}
    assert [sum(row[place] for row in rows) for place in (1, 2)] == counts["tokens"]
    assert all(row[3:6] == (row[1] * INPUT_NUSD, row[2] * OUTPUT_NUSD, row[3] + row[4]) for row in rows)
    assert sum(row[5] for row in rows) == round(batch["cost_details"]["cost"] * 1e9)
    assert until(lambda: reserved_nusd(node) == 0, 300), query(node, "SELECT * FROM lease")
    assert "The books agree." in node.manage("doctor", timeout=1800)
