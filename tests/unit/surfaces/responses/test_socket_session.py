"""Ends and bounds of a Responses WebSocket: timeouts, an ended credential, a restart, and a full queue."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from gevent.event import Event
from gevent.queue import Queue
from support.clock import FakeClock

from gateway.engine.realtime import watched_session
from gateway.errors import Unauthenticated
from gateway.runtime.byte_budget import ByteBudget
from gateway.runtime.threads import spawn
from gateway.surfaces.responses import socket_session
from gateway.surfaces.responses.socket_memory import SocketMemory
from gateway.surfaces.responses.socket_session import SocketSession, SocketWatch

HOUR_S = 3600
OWNER = "org_1"


class Caller:
    """A caller's socket: `gives` holds its messages, `told` the messages sent to it."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.gives: Queue = Queue()
        self.pings = self.received_count = self.code = 0
        self.reason, self.closed = "", False

    def receive(self) -> Any:
        return self.gives.get()

    def send(self, text: str) -> None:
        self.told.append(json.loads(text))

    def ping(self) -> None:
        self.pings += 1

    def close(self, number: int = 1000, reason: str = "") -> None:
        self.code, self.reason = self.code or number, self.reason or reason

    def abort(self) -> None:
        self.gives.put(None)

    def linger(self) -> None:
        """It has read all."""


class Running:
    """A session in its greenlet. Turns wait for `release`; `begun` lists the streams of turns that began."""

    def __init__(self, longest_s: float) -> None:
        self.clock, self.caller, self.release, self.begun = FakeClock(), Caller(), Event(), []
        self.leaving, self.refusal, self.sockets = False, None, set()
        self.memory = SocketMemory(ByteBudget(10_000, 10_000), OWNER)
        watch = SocketWatch(self.check, lambda: self.leaving, longest_s, self.sockets, self.clock)
        self.session = SocketSession(self.serve, self.memory, watch)
        self.greenlet = spawn(self.session.run, self.caller)

    def check(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def serve(self, socket: Any, frame: Any, body: bytes) -> None:
        self.begun.append(frame.stream)
        self.release.wait()

    def give(self, **more: Any) -> None:
        self.caller.gives.put(json.dumps({"type": "response.create", **more}))

    def wait(self, seconds: float = 0.05) -> None:
        self.greenlet.join(seconds)

    def end(self) -> Caller:
        self.greenlet.join(60)
        assert self.greenlet.ready() and self.memory.budget.held == 0 and self.sockets == set()
        return self.caller


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(watched_session, "LOOK_S", 0.01)
    monkeypatch.setattr(socket_session, "ANSWER_S", 0.01)
    running: list[Running] = []

    def begin(longest_s: float = HOUR_S) -> Running:
        running.append(Running(longest_s))
        return running[-1]

    yield begin
    for one in running:
        one.greenlet.kill()


def test_a_connection_ends_after_an_hour_when_its_turn_is_complete(run: Any) -> None:
    one = run()
    one.give()
    one.give()
    one.wait()
    one.clock.advance(HOUR_S)
    one.caller.received_count += 1
    one.wait()
    assert one.caller.told == [] and one.begun == [""]
    one.release.set()
    told = one.end()
    assert told.told[0]["error"]["code"] == "websocket_connection_limit_reached" and told.code == 1008
    assert one.begun == [""]


def test_a_restart_waits_for_the_turn_and_begins_no_other(run: Any) -> None:
    one = run()
    one.give()
    one.give()
    one.wait()
    one.leaving = True
    one.wait()
    assert not one.greenlet.ready() and one.caller.code == 0
    one.release.set()
    told = one.end()
    assert (told.code, told.reason, told.told, one.begun) == (1001, socket_session.RESTARTING, [], [""])


def test_a_credential_that_ended_ends_the_connection(run: Any) -> None:
    one = run()
    one.refusal = Unauthenticated("The key was revoked.")
    told = one.end()
    assert (told.code, told.told[0]["error"]["code"], told.told[0]["status"]) == (1008, "invalid_api_key", 401)


def test_a_caller_who_answers_no_ping_is_gone(run: Any) -> None:
    one = run()
    for _ in range(8):
        one.clock.advance(10)
        one.wait(0.03)
    assert one.end().code == 1001 and one.caller.pings >= 3


def test_streams_run_at_once_up_to_a_bound_and_each_in_order(run: Any) -> None:
    one = run()
    for number in range(18):
        one.give(stream_id=f"s{number}")
    one.give(stream_id="s0")
    one.wait()
    assert one.begun == [f"s{number}" for number in range(16)]
    one.release.set()
    one.wait()
    assert sorted(one.begun[16:]) == ["s0", "s16", "s17"]


def test_the_queue_the_streams_and_the_bytes_are_bounded(run: Any) -> None:
    one = run()
    for _ in range(34):
        one.give()
    one.give(input="x" * 20_000, stream_id="large")
    for number in range(33):
        one.caller.gives.put(json.dumps({"type": "response.create", "stream_id": f"s{number}"}))
    one.wait()
    assert one.caller.told[0]["error"]["code"] == "websocket_queue_full" and one.begun == [""]
    one.release.set()
    one.wait()
    codes = {event["error"]["code"] for event in one.caller.told}
    assert codes == {"websocket_queue_full"} and one.memory.budget.held == 0
    one.give(input="x" * 20_000, stream_id="large")
    for number in range(33):
        one.give(stream_id=f"s{number}")
        one.wait(0.01)
    found = [(event["error"]["code"], event["stream_id"]) for event in one.caller.told[-2:]]
    assert found == [("overloaded", "large"), ("websocket_stream_limit_reached", "s32")]
