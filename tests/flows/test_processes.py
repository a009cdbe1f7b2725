"""The promises of a gateway process: a crash loses nothing, a drain cuts nothing, a change is in force at once."""

import json
import os
import re
import signal
import sqlite3
from collections.abc import Callable

import gevent
import httpx
import pytest
from support.gateways import GatewayProcess
from support.spending import until

HELLO = [{"role": "user", "content": "Hello"}]
SLOW = [{"role": "user", "content": "[[sandbox: tokens=20 pace=200]]"}]

Start = Callable[..., GatewayProcess]


def post_chat(gateway: GatewayProcess, http: httpx.Client, body: dict, key: str = "") -> httpx.Response:
    headers = {"Authorization": f"Bearer {key or gateway.key}"}
    return http.post(f"{gateway.url}/chat/completions", json=body, headers=headers, timeout=40)


def answered(gateway: GatewayProcess, done: set[str], stop: list[bool]) -> None:
    """Send requests until `stop` is set; `done` gets the id of every whole answer."""
    with httpx.Client(timeout=60) as http:
        while not stop:
            try:
                answer = post_chat(gateway, http, {"model": "sandbox-echo", "messages": HELLO})
            except httpx.HTTPError:
                return
            if answer.status_code == 200:
                done.add(answer.json()["metadata"]["log_id"])


def stream(gateway: GatewayProcess, open_ones: list[bool]) -> dict:
    """One slow stream to its end: its last usage chunk, {} when it was cut. Once open it is added to `open_ones`."""
    body = {"model": "sandbox-template", "messages": SLOW, "stream": True}
    headers = {"Authorization": f"Bearer {gateway.key}"}
    last, done = {}, False
    with httpx.stream("POST", f"{gateway.url}/chat/completions", json=body, headers=headers, timeout=300) as answer:
        open_ones.append(True)
        for line in answer.iter_lines():
            done = done or line == "data: [DONE]"
            if line.startswith("data: {"):
                last = json.loads(line[6:])
    return last if done else {}


def rows(gateway: GatewayProcess, where: str = "1") -> list[tuple]:
    """Usage rows as (request id, finish)."""
    with sqlite3.connect(gateway.data / "gateway.db", timeout=10) as database:
        found = database.execute(f"SELECT hex(request), finish FROM usage WHERE {where}").fetchall()
    return [(ident.lower(), finish) for ident, finish in found]


@pytest.mark.extended
def test_kill_9_under_load_loses_and_doubles_no_completed_answer(process: Start) -> None:
    gateway = process(workers=2)
    done, stop = set(), []
    load = [gevent.spawn(answered, gateway, done, stop) for _ in range(8)]
    assert until(lambda: len(done) > 50)
    gateway.kill()
    stop.append(True)
    gevent.joinall(load)
    gateway.start()
    found = [ident for ident, _ in rows(gateway)]
    assert all(found.count(ident) == 1 for ident in done)


@pytest.mark.extended
def test_sigterm_with_a_hundred_open_streams_cuts_none(process: Start) -> None:
    gateway = process(SHUTDOWN_GRACE_PERIOD_MS="300000")
    open_ones: list[bool] = []
    streams = [gevent.spawn(stream, gateway, open_ones) for _ in range(100)]
    assert until(lambda: len(open_ones) == 100)
    gateway.terminate()
    gevent.joinall(streams)
    assert gateway.wait(300) == 0
    ends = [stream.value for stream in streams]
    assert all(end and end.get("usage") for end in ends)
    assert len(set(rows(gateway))) == 100


def test_a_worker_that_is_killed_leaves_the_others_serving(process: Start) -> None:
    gateway = process(workers=2)
    os.kill(gateway.workers()[0], signal.SIGKILL)
    with httpx.Client(timeout=60) as http:
        codes = []
        for _ in range(20):
            try:
                codes.append(post_chat(gateway, http, {"model": "sandbox-echo", "messages": HELLO}).status_code)
            except httpx.HTTPError:
                codes.append(0)  # the connection that the dead worker held
    assert codes.count(200) >= 18


def test_a_rolled_key_is_refused_by_every_worker_when_the_command_returns(process: Start) -> None:
    gateway = process(workers=4)
    ident, token = create_key(gateway)
    assert statuses(gateway, token) == {200}
    gateway.manage("keys", "roll", ident)
    assert statuses(gateway, token) == {401}


def test_a_deactivated_key_is_refused_by_every_worker_when_the_command_returns(process: Start) -> None:
    gateway = process(workers=4)
    ident, token = create_key(gateway)
    assert statuses(gateway, token) == {200}
    gateway.manage("keys", "deactivate", ident)
    assert statuses(gateway, token) == {401}


def create_key(gateway: GatewayProcess) -> tuple[str, str]:
    """Id and token of a new key."""
    output = gateway.manage("keys", "create", "--description", "to be changed")
    return re.search(r"key_[0-9a-f]{32}", output)[0], re.search(r"llmgtwy_[\w-]{40}", output)[0]


def statuses(gateway: GatewayProcess, token: str) -> set[int]:
    """Return the statuses of 40 requests over fresh connections, so that every worker gets some."""
    body = {"model": "sandbox-echo", "messages": HELLO}

    def once() -> int:
        with httpx.Client(timeout=60) as http:
            return post_chat(gateway, http, body, token).status_code

    tries = [gevent.spawn(once) for _ in range(40)]
    gevent.joinall(tries, timeout=30)
    return {one.value for one in tries}


def test_a_caller_that_hangs_up_ends_the_upstream_call_and_has_its_row(process: Start) -> None:
    gateway = process()
    body = {"model": "sandbox-template", "messages": [{"role": "user", "content": "[[sandbox: silent=20]]"}]}
    with httpx.Client(timeout=2) as http:
        try:
            http.post(f"{gateway.url}/chat/completions", json=body, headers={"Authorization": f"Bearer {gateway.key}"})
        except httpx.TimeoutException:
            pass
    assert until(lambda: bool(rows(gateway)))
    assert [finish for _, finish in rows(gateway)] == ["client_disconnect"]


def test_a_second_start_is_quick_and_shows_no_key(process: Start) -> None:
    gateway = process()
    gateway.stop()
    began = len(gateway.log())
    gateway.cold = True
    gateway.start()
    startup_log = gateway.log()[began:]
    assert gateway.key not in startup_log
    assert "keys create" in startup_log
