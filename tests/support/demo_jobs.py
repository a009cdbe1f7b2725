"""Files and jobs of each kind of a small company, with names that no page should believe."""

import json
import time
from typing import Any

import httpx
from support.gateways import LocalGateway

NAME = "<img src=x onerror=alert(1)>\"'_a_very_long_name_without_any_place_where_a_line_could_break.jsonl"
FAILED = "[[sandbox: status=400]]"
LINES = 60


def add_demo_jobs(gateway: LocalGateway) -> str:
    """Add them to the gateway's first project, and return the id of a batch with errors."""
    headers = {"Authorization": f"Bearer {gateway.key}"}
    with httpx.Client(base_url=gateway.url, headers=headers, trust_env=False, timeout=60) as web:

        def send(path: str, **more: Any) -> Any:
            answer = web.post(path, **more)
            assert answer.status_code < 300, answer.text
            return answer.json()

        def begin(lines: list[bytes]) -> str:
            form = {"data": {"purpose": "batch"}, "files": {"file": (NAME, b"\n".join(lines))}}
            task = {"input_file_id": send("files", **form)["id"], "endpoint": "/v1/embeddings"}
            return str(send("batches", json={**task, "completion_window": "24h"})["id"])

        send("files", data={"purpose": "user_data"}, files={"file": ("report.pdf", b"%PDF-1.7\n" * 99_000)})
        refused = begin([b"{}", b'{"custom_id": "2", "url": "/v1/embeddings", "body": {"model": "no-such-model"}}'])
        ended = begin([_line(number, FAILED if number % 2 else "Tea") for number in range(1, LINES + 1)])
        batches = gateway.services.engine.batches
        deadline = time.monotonic() + 60
        while not all(batches.rows.find(one).has_ended for one in (refused, ended)):
            batches.run()
            assert time.monotonic() < deadline
        begin([_line(number, "Tea") for number in range(9)])
        send("responses", json={"model": "sandbox-echo", "input": "Hello!", "background": True})
    return ended


def _line(number: int, text: str) -> bytes:
    ident = NAME + "0" * 300 if number == 1 else f"line-{number}"
    body = {"model": "sandbox-embed", "input": text}
    return json.dumps({"custom_id": ident, "method": "POST", "url": "/v1/embeddings", "body": body}).encode()
