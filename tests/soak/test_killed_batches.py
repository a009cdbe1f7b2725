"""A whole gateway ends by kill -9 while it sends a batch: every line has one result, and is paid once."""

import json
from typing import Any

import httpx
import pytest
from support.gateways import Start
from support.spending import query, reserved_nusd, until

LINES = 300
KILLS = 3


def line(number: int) -> bytes:
    body = {
        "model": "sandbox-echo",
        "max_tokens": 50,
        "messages": [{"role": "user", "content": f"Line {number} [[sandbox: silent=0.3]]"}],
    }
    return json.dumps({"custom_id": str(number), "url": "/v1/chat/completions", "body": body}).encode()


@pytest.mark.soak
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_a_batch_of_a_killed_gateway_loses_no_line_and_pays_none_twice(
    start: Start, store: str, request: pytest.FixtureRequest
) -> None:
    more: dict[str, Any] = {"GATEWAY_CATALOGUE_SANDBOX": "true", "GATEWAY_BOOTSTRAP_CREDITS_USD": "100"}
    if store == "postgresql":
        more |= {
            "DATABASE_URL": request.getfixturevalue("postgresql_url"),
            "GATEWAY_API_KEY_HASH_SECRET": "a long secret of this test for hashes",
            "GATEWAY_ENCRYPTION_KEY": "a long secret of this test for encryption",
        }
    gateway = start(workers=2, **more)

    def call(method: str, path: str, **given: Any) -> Any:
        with httpx.Client(timeout=30, headers={"Authorization": f"Bearer {gateway.key}"}) as http:
            answer = http.request(method, f"{gateway.address}/v1{path}", **given)
            answer.raise_for_status()
            return answer

    data = b"\n".join(line(number) for number in range(LINES))
    file = call("POST", "/files", files={"file": ("lines.jsonl", data)}, data={"purpose": "batch"}).json()
    wire = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch = call("POST", "/batches", json=wire).json()["id"]
    for kill in range(KILLS):
        wanted = (kill + 1) * LINES // (KILLS + 2)
        assert until(lambda: query(gateway, "SELECT COUNT(*) FROM batch_line")[0][0] >= wanted, 120)  # noqa: B023
        gateway.kill()
        gateway.start()

    def ended() -> bool:
        return call("GET", f"/batches/{batch}").json()["status"] == "completed"

    assert until(ended, 180)
    shown = call("GET", f"/batches/{batch}").json()
    assert shown["request_counts"] == {"total": LINES, "completed": LINES, "failed": 0}
    output = call("GET", f"/files/{shown['output_file_id']}/content").text.splitlines()
    assert [json.loads(one)["custom_id"] for one in output] == [str(number) for number in range(LINES)]
    requests = {json.loads(one)["response"]["request_id"] for one in output}
    rows = query(gateway, "SELECT request, cost_nusd FROM usage WHERE operation = 'chat'")
    assert {bytes(request).hex() for request, _ in rows} == requests and len(rows) == LINES
    assert until(lambda: reserved_nusd(gateway) == 0)
    assert "The books agree." in gateway.manage("doctor")
