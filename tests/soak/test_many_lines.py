"""A batch of many lines on two nodes while workers are killed: every line has one result and is paid once, workers stay
small, and small requests beside it are answered. `make batch-kills LINES=50000` runs fifty thousand; the default is
4,000."""

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
from support.gateways import Start
from support.killed_lines import Watch, httpx_of, p99_ms, run_batch
from support.marked_calls import MarkedCalls
from support.spending import TOKEN_NUSD, query, reserved_nusd, until

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not shutil.which("cc"), reason="the provider is written in C"),
]

LINES = int(os.environ.get("LINES", "4000"))
KILL_EVERY_S = float(os.environ.get("KILL_EVERY_S", "10"))
NODES = WORKERS = 2
TOKENS = 100  # of each answer
PATIENCE_S = 600 + LINES / 10
MEMORY_GROWTH_MB = 40


@pytest.fixture
def mint(tmp_path: Path) -> MarkedCalls:
    return MarkedCalls(tmp_path)


def line(number: int) -> bytes:
    body = {
        "model": "mint/coin",
        "max_tokens": TOKENS,
        "messages": [{"role": "user", "content": f"mark:m{number}"}],
    }
    return json.dumps({"custom_id": f"m{number}", "url": "/v1/chat/completions", "body": body}).encode()


@pytest.mark.parametrize("start", ["postgresql"], indirect=True)
def test_every_line_of_a_batch_is_paid_once_although_workers_are_killed(
    start: Start, mint: MarkedCalls, redis_url: str, tmp_path: Path
) -> None:
    more = {"REDIS_URL": redis_url, "GATEWAY_FILES_FOLDER": str(tmp_path / "files")}
    nodes = [start(workers=WORKERS, GATEWAY_BOOTSTRAP_CREDITS_USD="1000000", **more) for _ in range(NODES)]
    with mint.provide(LINES, TOKENS) as calls:
        watch = Watch(nodes, KILL_EVERY_S)
        alone = watch.probe(10)
        batch, seconds = run_batch(nodes, watch, b"\n".join(map(line, range(LINES))), PATIENCE_S)
    output = httpx_of(nodes[0], "GET", f"/files/{batch['output_file_id']}/content")
    results = [json.loads(one) for one in output.text.splitlines()]
    rows = query(nodes[0], "SELECT request, cost_nusd, finish FROM usage WHERE tags LIKE '%batch%'")
    beside = watch.waits_s
    again = sum(calls) - LINES
    print(
        f"{LINES} lines in {seconds:.0f} s, {watch.kills} kills, {len(rows)} rows, {sum(calls)} calls ({again} again); "
        f"memory +{watch.growth_mb:.0f} MB; p99 of {len(beside)} small requests {p99_ms(beside):.0f} ms, "
        f"alone {p99_ms(alone):.0f} ms"
    )
    assert batch["request_counts"] == {"total": LINES, "completed": LINES, "failed": 0}
    assert [one["custom_id"] for one in results] == [f"m{number}" for number in range(LINES)]
    assert min(calls) >= 1 and max(Counter(calls)) <= 2 + watch.kills
    assert len(rows) == LINES and {cost for _, cost, _ in rows} == {TOKENS * TOKEN_NUSD}
    assert {bytes(request).hex() for request, _, _ in rows} == {one["response"]["request_id"] for one in results}
    assert until(lambda: reserved_nusd(nodes[0]) == 0, 300), query(nodes[0], "SELECT * FROM lease")
    assert "The books agree." in nodes[0].manage("doctor", timeout=1800)
    assert watch.growth_mb <= MEMORY_GROWTH_MB
