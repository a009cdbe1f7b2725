"""Callers that hang up at random moments, on every surface: one row each, and nothing stays reserved."""

import random
import socket
from collections import Counter

import httpx
import pytest
from fakes.upstream import FakeUpstream
from support.gateways import GatewayProcess, Start
from support.spending import BODIES, FORMS, STREAMED, TOKEN_NUSD, query, reserved_nusd, say_in_headers, sent_to, until

from gateway.runtime.threads import Job

pytestmark = pytest.mark.extended

CALLERS = 16
# About what a streamed answer has; an offset beyond its end reads it whole.
MAX_BYTES = 6000
WAYS = [(path, False) for path in (*BODIES, *FORMS)] + [(path, True) for path in STREAMED]


def abort(gateway: GatewayProcess, mint: FakeUpstream, mark: str, chance: random.Random, way: tuple[str, bool]) -> None:
    """One request, cut off after so many bytes of its answer, 0: as soon as the upstream knows of it."""
    path, streamed = way
    offset = chance.randint(0, MAX_BYTES) if streamed and chance.random() < 0.8 else 0
    prompt = f"mark:{mark} gap:0.004" if streamed else f"mark:{mark} wait:{chance.uniform(0.05, 0.6):.2f}"
    body = (
        {} if path in FORMS else {"model": "mint/coin"} | BODIES[path](prompt) | ({"stream": True} if streamed else {})
    )
    request = httpx.Request("POST", gateway.address, **(sent_to(path, prompt) if path in FORMS else {"json": body}))
    payload, kind = request.read(), request.headers["content-type"]
    said = "".join(f"{name}: {value}\r\n" for name, value in say_in_headers(path, body).items())
    head = (
        f"POST {path} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {gateway.key}\r\nx-request-id: {mark}\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {len(payload)}\r\n{said}Connection: close\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=30) as connection:
        connection.sendall(head.encode() + payload)
        received = 0
        while received < offset and (piece := connection.recv(min(512, offset - received))):
            received += len(piece)
        assert until(lambda: mark in mint.marks())


@pytest.mark.parametrize("total", [70, pytest.param(1000, marks=pytest.mark.soak)])
def test_every_abort_has_its_row(start: Start, mint: FakeUpstream, total: int) -> None:
    gateway = start(workers=2, GATEWAY_BOOTSTRAP_CREDITS_USD="100000")
    marks = [f"a{number}" for number in range(total)]

    def caller(first: int) -> None:
        for number in range(first, total, CALLERS):
            abort(gateway, mint, marks[number], random.Random(number), WAYS[number % len(WAYS)])

    for job in [Job(caller, first) for first in range(CALLERS)]:
        job.result(600)
    assert until(lambda: query(gateway, "SELECT count(*) FROM usage") == [(total,)])
    rows = query(gateway, "SELECT label, finish, cost_nusd FROM usage")
    finishes = Counter(finish for _, finish, _ in rows)
    print(f"{total} aborts over {len(WAYS)} ways: {dict(finishes)}")
    assert Counter(label for label, *_ in rows) == Counter(marks) == Counter(mint.marks())
    assert set(finishes) <= {"client_disconnect", "stop"} and finishes["client_disconnect"] > total // 2
    assert all(cost <= 100_000 * TOKEN_NUSD for _, _, cost in rows)
    assert until(lambda: reserved_nusd(gateway) == 0)
    assert "The books agree." in gateway.manage("doctor")
