"""Two hundred WebSockets of twenty turns each: four thousand exact rows. Then many sockets of one key that has credits
for three turns: exactly three are served."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gevent
import orjson
import pytest
from fakes.upstream import FakeUpstream
from support.gateways import GatewayProcess, Start
from support.spending import TOKEN_NUSD, make_keys, query, reserved_nusd, until
from websockets.sync.client import ClientConnection, connect

pytestmark = pytest.mark.soak

SOCKETS = 200
TURNS = 20
TOKENS = 100  # of each answer
MAX_DURATION_S = 480  # all clients share the process of the test
ENDS = ("response.completed", "response.failed", "response.incomplete", "error")


@contextmanager
def connected(gateway: GatewayProcess, key: str) -> Iterator[ClientConnection]:
    """A connection without an SDK, whose models would take most of the processor's time."""
    headers = {"Authorization": f"Bearer {key}"}
    address = f"{gateway.url.replace('http', 'ws', 1)}/responses"
    with connect(
        address, additional_headers=headers, proxy=None, open_timeout=MAX_DURATION_S, compression=None
    ) as socket:
        yield socket


def take_turn(socket: ClientConnection, text: str, previous: str | None) -> dict[str, Any]:
    """Return the last event of a turn."""
    body = {"type": "response.create", "model": "coin", "input": text, "max_output_tokens": TOKENS, "store": False}
    if previous:
        body["previous_response_id"] = previous
    socket.send(orjson.dumps(body).decode())
    while True:
        event: dict[str, Any] = orjson.loads(socket.recv())
        if event["type"] in ENDS:
            return event


def hold_chain(gateway: GatewayProcess, number: int) -> int:
    """Return the number of completed turns of a conversation."""
    previous = None
    with connected(gateway, gateway.key) as socket:
        for turn in range(TURNS):
            last = take_turn(socket, f"mark:m{number}-{turn}", previous)
            assert last["type"] == "response.completed", last
            previous = last["response"]["id"]
    return TURNS


def test_four_thousand_turns_of_two_hundred_sockets_have_four_thousand_exact_rows(
    start: Start, mint: FakeUpstream
) -> None:
    gateway = start(workers=2, GATEWAY_BOOTSTRAP_CREDITS_USD="1000")
    began = time.monotonic()
    chains = [gevent.spawn(hold_chain, gateway, number) for number in range(SOCKETS)]
    gevent.joinall(chains, timeout=MAX_DURATION_S)
    print(f"{SOCKETS} sockets of {TURNS} turns: {time.monotonic() - began:.0f} s")
    assert [chain.value for chain in chains] == [TURNS] * SOCKETS
    marks = {f"m{number}-{turn}" for number in range(SOCKETS) for turn in range(TURNS)}
    assert len(mint.calls) == len(marks) and set(mint.marks()) == marks
    rows = query(gateway, "SELECT cost_nusd, output, finish FROM usage")
    assert len(rows) == SOCKETS * TURNS
    assert set(rows) == {(TOKENS * TOKEN_NUSD, TOKENS, "stop")}
    assert until(lambda: reserved_nusd(gateway) == 0)
    assert "The books agree." in gateway.manage("doctor")


def take_one_turn(gateway: GatewayProcess, key: str) -> str:
    """Return the type of the last event of a turn, or the code of its error; a turn that only waits for those in
    progress is sent again on the same connection, as clients do."""
    with connected(gateway, key) as socket:
        while True:
            last = take_turn(socket, "wait:0.2", None)
            code: str = last["error"]["code"] if last["type"] == "error" else last["type"]
            if code != "budget_in_use":
                return code
            gevent.sleep(0.2)


def test_a_key_with_credits_for_three_turns_gets_three_on_fifty_sockets(start: Start, mint: FakeUpstream) -> None:
    gateway = start(workers=2, GATEWAY_BOOTSTRAP_CREDITS_USD="1000")
    # A turn reserves a few nano-dollars more than its price.
    [key] = make_keys(gateway, [4 * TOKENS * TOKEN_NUSD - 1])
    turns = [gevent.spawn(take_one_turn, gateway, key) for _ in range(50)]
    gevent.joinall(turns, timeout=MAX_DURATION_S)
    codes = [turn.value for turn in turns]
    assert sorted(codes) == ["key_limit_reached"] * 47 + ["response.completed"] * 3
    assert query(gateway, "SELECT cost_nusd FROM usage") == [(TOKENS * TOKEN_NUSD,)] * 3 and len(mint.calls) == 3
    assert until(lambda: reserved_nusd(gateway) == 0)
    assert "The books agree." in gateway.manage("doctor")
