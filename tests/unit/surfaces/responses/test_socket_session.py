"""Ends and bounds of a Responses WebSocket: timeouts, an ended credential, a restart, and a full queue."""

import gc
import json
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from gevent.event import Event
from gevent.queue import Queue
from support.clock import FakeClock

from gateway.engine.realtime import session as session_module
from gateway.errors import Unauthenticated, Unavailable
from gateway.runtime.byte_budget import ByteBudget
from gateway.runtime.threads import spawn
from gateway.surfaces.responses import routes
from gateway.surfaces.responses.routes import SocketSession, SocketWatch
from gateway.surfaces.responses.socket_memory import SocketMemory

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


class Slots:
    """The slots of a socket, in a store that may be down."""

    def __init__(self) -> None:
        self.renewed = 0

    def renew(self) -> None:
        self.renewed += 1
        raise Unavailable("The store is down.")


class Running:
    """A session in its greenlet. Turns wait for `release`; `begun` lists the streams of turns that began."""

    def __init__(self, longest_s: float) -> None:
        self.clock, self.caller, self.release, self.begun = FakeClock(), Caller(), Event(), []
        self.leaving, self.refusal, self.sockets = False, None, set()
        self.memory = SocketMemory(ByteBudget(10_000, 10_000), OWNER)
        self.slots = Slots()
        watch = SocketWatch(self.check, lambda: self.leaving, longest_s, self.sockets, self.clock, (self.slots,))
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
    monkeypatch.setattr(session_module, "CHECK_INTERVAL_S", 0.01)
    monkeypatch.setattr(routes, "CLOSE_TIMEOUT_S", 0.01)
    running: list[Running] = []

    def begin(longest_s: float = HOUR_S) -> Running:
        running.append(Running(longest_s))
        return running[-1]

    yield begin
    for one in running:
        one.greenlet.kill()


def test_a_connection_ends_after_an_hour_when_its_turn_is_complete(run: Any) -> None:
    session = run()
    session.give()
    session.give()
    session.wait()
    session.clock.advance(HOUR_S)
    session.caller.received_count += 1
    session.wait()
    assert session.caller.told == [] and session.begun == [""]
    session.release.set()
    told = session.end()
    assert told.told[0]["error"]["code"] == "websocket_connection_limit_reached" and told.code == 1008
    assert session.begun == [""]


def test_a_restart_waits_for_the_turn_and_begins_no_other(run: Any) -> None:
    session = run()
    session.give()
    session.give()
    session.wait()
    session.leaving = True
    session.wait()
    assert not session.greenlet.ready() and session.caller.code == 0
    session.release.set()
    told = session.end()
    assert (told.code, told.reason, told.told, session.begun) == (1001, routes.RESTARTING_MESSAGE, [], [""])


def test_a_credential_that_ended_ends_the_connection(run: Any) -> None:
    session = run()
    session.refusal = Unauthenticated("The key was revoked.")
    told = session.end()
    assert (told.code, told.told[0]["error"]["code"], told.told[0]["status"]) == (1008, "invalid_api_key", 401)


def test_a_caller_who_answers_no_ping_is_gone(run: Any) -> None:
    session = run()
    for _ in range(8):
        session.clock.advance(10)
        session.wait(0.03)
    assert session.end().code == 1001 and session.caller.pings >= 3


def test_streams_run_at_once_up_to_a_bound_and_each_in_order(run: Any) -> None:
    session = run()
    for number in range(18):
        session.give(stream_id=f"s{number}")
    session.give(stream_id="s0")
    session.wait()
    assert session.begun == [f"s{number}" for number in range(16)]
    session.release.set()
    session.wait()
    assert sorted(session.begun[16:]) == ["s0", "s16", "s17"]


def test_the_queue_the_streams_and_the_bytes_are_bounded(run: Any) -> None:
    session = run()
    for _ in range(34):
        session.give()
    session.give(input="x" * 20_000, stream_id="large")
    for number in range(33):
        session.caller.gives.put(json.dumps({"type": "response.create", "stream_id": f"s{number}"}))
    session.wait()
    assert session.caller.told[0]["error"]["code"] == "websocket_queue_full" and session.begun == [""]
    session.release.set()
    session.wait()
    codes = {event["error"]["code"] for event in session.caller.told}
    assert codes == {"websocket_queue_full"} and session.memory.budget.held == 0
    session.give(input="x" * 20_000, stream_id="large")
    for number in range(33):
        session.give(stream_id=f"s{number}")
        session.wait(0.01)
    found = [(event["error"]["code"], event["stream_id"]) for event in session.caller.told[-2:]]
    assert found == [("overloaded", "large"), ("websocket_stream_limit_reached", "s32")]


class Message(str):
    """A text that can be referred to weakly."""


def test_idle_connection_holds_no_message(run: Any) -> None:
    running = run()
    running.release.set()
    message = Message(json.dumps({"type": "response.create", "model": "m", "input": "x" * 1000}))
    held = weakref.ref(message)
    running.caller.gives.put(message)
    del message
    running.wait()
    assert running.begun == [""]
    gc.collect()
    assert held() is None
