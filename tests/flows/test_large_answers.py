"""Large responses that callers do not read: memory stays bounded, and every response is billed."""

import json
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from fakes.openai import Answer, FakeOpenAI
from support.gateways import GatewayProcess

CALLERS = 8
TEXT = "word " * 1_600_000  # 8 MB, more than the buffers of a connection take
PATHS = {
    "/v1/chat/completions": ({"messages": [{"role": "user", "content": "Hello"}]}, "code"),
    "/v1/messages": ({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 100}, "type"),
    "/v1/responses": ({"input": "Hello", "store": False}, "code"),
}


@pytest.fixture
def small(process) -> Iterator[tuple[GatewayProcess, FakeOpenAI]]:
    """A worker with room for three such answers of one organization."""
    with FakeOpenAI() as upstream:
        yield (
            process(
                LLM_OPENAI_API_KEY="sk-upstream",
                LLM_OPENAI_BASE_URL=upstream.url,
                LLM_OPENAI_USE_RESPONSES_API="false",
                GATEWAY_SERVER_BODIES_MB="64",
                GATEWAY_SERVER_ORGANIZATION_BODIES_MB="28",
                GATEWAY_SERVER_ANSWER_WAIT_S="0.05",
            ),
            upstream,
        )


def begin(gateway: GatewayProcess, path: str, body: dict) -> socket.socket:
    """A request that was sent, of a caller who reads nothing."""
    caller = socket.socket()
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    caller.connect(("127.0.0.1", gateway.port))
    content = json.dumps({"model": "openai/gpt-4.1", **body}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {gateway.key}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    caller.sendall(head.encode() + content)
    return caller


def rows(gateway: GatewayProcess) -> list[tuple[int, int]]:
    with closing(sqlite3.connect(gateway.data / "gateway.db", timeout=10)) as database:
        return database.execute("SELECT input, output FROM usage").fetchall()


@pytest.mark.parametrize("path", PATHS)
def test_answers_that_callers_do_not_take_are_bounded_billed_and_refused_in_the_callers_dialect(small, path):
    gateway, upstream = small
    body, code = PATHS[path]
    upstream.script(*[Answer(TEXT, prompt=10, completion=5) for _ in range(CALLERS)])
    callers = [begin(gateway, path, body) for _ in range(CALLERS)]
    answers = []
    for caller in callers:
        caller.settimeout(60)
        answers.append(caller.recv(16))
    statuses = sorted(answer.split()[1] for answer in answers)
    accepted, refused = statuses.count(b"200"), statuses.count(b"529")
    assert accepted + refused == CALLERS and 1 <= accepted <= 3, statuses
    for caller, answer in zip(callers, answers, strict=True):
        if answer.split()[1] == b"529":
            with caller.makefile("rb") as rest:
                error = json.loads(rest.read().partition(b"\r\n\r\n")[2])["error"]
            assert error[code] in ("overloaded", "overloaded_error")
        caller.close()
    until = time.monotonic() + 20
    while len(rows(gateway)) < CALLERS and time.monotonic() < until:
        time.sleep(0.05)
    assert rows(gateway) == [(10, 5)] * CALLERS, "each is billed what it consumed"
    status, answer = gateway.post(
        "/v1/chat/completions", {"model": "openai/gpt-4.1", **PATHS["/v1/chat/completions"][0]}
    )
    assert status == 200 and answer["choices"][0]["message"]["content"] == "Hello."
