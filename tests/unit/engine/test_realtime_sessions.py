"""Ends of a realtime session: timeouts, a closed side, and a provider that accepts no data."""

import gc
import json
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from gevent.event import Event
from gevent.queue import Queue
from support.clock import FakeClock

from gateway.configuration.settings import load
from gateway.engine.realtime import session as sessions
from gateway.engine.realtime.session import RealtimeSession, SessionLimits, SessionWatch
from gateway.errors import GatewayError, Gone, OutOfCredits, RateLimited, SpendingLimitReached, Unauthenticated
from gateway.neutral.realtime import ServerEvent, SessionLock
from gateway.runtime.threads import spawn
from gateway.surfaces.openai.realtime_events import OpenAIEvents
from gateway.transport.websocket_channels import LOST, SocketClosed

HOUR_S, IDLE_S = 3600, 900


class Side:
    """One side of a session, as a socket and as a link: a list of the messages sent to it, and `gives` for its own."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.gives: Queue = Queue()
        self.pings = self.received_count = 0
        self.code, self.reason, self.closed, self.deaf = LOST, "", 0, False

    def receive(self) -> Any:
        return self.gives.get()

    def send(self, text: str) -> None:
        if self.deaf:
            raise SocketClosed
        self.sent.append(text)

    def ping(self) -> None:
        self.pings += 1

    def close(self, number: int = 1000, reason: str = "") -> None:
        self.closed, self.reason = self.closed or number, self.reason or reason

    def abort(self) -> None:
        self.gives.put(None)

    def linger(self) -> None:
        """It has read all."""


class Turns:
    """Stands in for the money: nothing is in progress, and `closed_by` is the error that it was closed with."""

    busy = False

    def __init__(self) -> None:
        self.books = SimpleNamespace(context=SimpleNamespace(caller="caller"))
        self.conversation = SimpleNamespace(add=lambda event: None)
        self.settings = SimpleNamespace(requested=lambda event: None)
        self.closed_by: list[Any] = []

    def grow(self) -> None: ...
    def take(self, event: ServerEvent) -> None: ...
    def responses(self) -> list[str]:
        return []

    def close(self, error: Any) -> None:
        self.closed_by.append(error)


class NoRules:
    """Guardrails without a rule."""

    def request(self, event: Any) -> Any:
        return event

    def answers(self, text: str) -> list[str]:
        return [text]


class Running:
    """A session in its greenlet, between two sides."""

    def __init__(self, longest_s: float, idle_s: float) -> None:
        self.clock, self.caller, self.upstream, self.turns = FakeClock(), Side(), Side(), Turns()
        limits = SessionLimits(longest_s, idle_s)
        watch = SessionWatch(lambda: "caller", lambda caller: None, lambda: False, (), set(), limits, self.clock)
        events = OpenAIEvents("realtime", frozenset(), str, SessionLock(), load({}).limits)
        self.session = RealtimeSession(self.upstream, self.turns, events, watch, NoRules())
        self.greenlet = spawn(self.session.run, self.caller)

    def pass_time(self, seconds: float) -> None:
        """Time in which both sides answer pings."""
        self.clock.advance(seconds)
        self.caller.received_count += 1
        self.upstream.received_count += 1
        self.greenlet.join(0.03)

    def end(self) -> dict[str, Any]:
        """Return the last error that the caller received, after the end of the session."""
        self.greenlet.join(60)
        assert self.greenlet.ready()
        return json.loads(self.caller.sent[-1])["error"]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(sessions, "CHECK_INTERVAL_S", 0.01)
    monkeypatch.setattr(sessions, "CLOSE_TIMEOUT_S", 0.01)
    running: list[Running] = []

    def begin(longest_s: float = HOUR_S, idle_s: float = IDLE_S) -> Running:
        running.append(Running(longest_s, idle_s))
        return running[-1]

    yield begin
    for one in running:
        one.greenlet.kill()


def test_a_session_ends_after_an_hour_however_much_is_said(run) -> None:
    session = run(idle_s=0)
    for _ in range(3):
        session.pass_time(HOUR_S / 3 - 1)
        assert session.caller.sent == [] and not session.greenlet.ready()
    session.clock.advance(3)
    error = session.end()
    assert (error["code"], error["type"]) == ("session_expired", "invalid_request_error")
    assert (session.caller.closed, session.caller.reason) == (1008, "session_expired")
    assert session.turns.closed_by and set(session.turns.closed_by) == {None}


def test_a_session_without_an_event_of_its_caller_ends(run) -> None:
    session = run()
    session.pass_time(IDLE_S - 1)
    session.caller.gives.put('{"type": "input_audio_buffer.clear"}')
    session.greenlet.join(0.01)
    session.pass_time(IDLE_S - 1)
    assert not session.greenlet.ready() and len(session.upstream.sent) == 1
    session.clock.advance(2)
    assert session.end()["code"] == "session_idle"


def test_a_provider_that_accepts_nothing_is_reported_as_disconnected(run) -> None:
    session = run()
    session.upstream.deaf = True
    session.caller.gives.put('{"type": "input_audio_buffer.clear"}')
    assert session.end()["code"] == "stream_truncated"
    assert session.caller.closed == 1011
    assert [error.code for error in session.turns.closed_by if error] == ["stream_truncated"]


def test_a_provider_that_answers_no_ping_is_gone(run) -> None:
    session = run(idle_s=0)
    for _ in range(8):
        session.clock.advance(10)
        session.caller.received_count += 1
        session.greenlet.join(0.03)
    assert session.end()["code"] == "stream_truncated" and session.upstream.pings >= 3


def test_invalid_client_events_are_refused_with_their_id(run) -> None:
    session = run()
    session.caller.gives.put('{"type": "response.steal", "event_id": "mine"}')
    session.greenlet.join(0.02)
    assert json.loads(session.caller.sent[0])["error"]["event_id"] == "mine" and session.upstream.sent == []


def test_waiting_senders_are_released_when_the_provider_is_no_longer_read(run) -> None:
    session, over = run(), Event()

    def send(text: str) -> None:
        over.wait()
        raise SocketClosed

    session.upstream.send, session.upstream.abort = send, over.set
    session.caller.gives.put('{"type": "input_audio_buffer.clear"}')
    session.greenlet.join(0.02)
    session.caller.deaf = True
    session.upstream.gives.put(ServerEvent(text="{}"))
    session.greenlet.join(60)
    assert session.greenlet.ready()


@pytest.mark.parametrize("kind", [SpendingLimitReached, OutOfCredits, Unauthenticated, Gone])
def test_an_event_that_stays_refused_ends_the_session(run, kind: type[GatewayError]) -> None:
    session = run()

    def grow() -> None:
        raise kind("It stays refused.")

    session.turns.grow, session.turns.settings.refused = grow, str
    session.caller.gives.put('{"type": "session.update", "event_id": "mine", "session": {}}')
    assert session.end()["event_id"] == "mine"


def test_a_change_that_was_not_let_through_is_not_waited_for(run) -> None:
    session, refused = run(), []

    def grow() -> None:
        raise RateLimited("Later.")

    session.turns.grow, session.turns.settings.refused = grow, refused.append
    session.caller.gives.put('{"type": "session.update", "event_id": "mine", "session": {}}')
    session.greenlet.join(0.02)
    assert refused == ["mine"] and json.loads(session.caller.sent[0])["error"]["event_id"] == "mine"
    assert session.upstream.sent == []


def test_events_that_are_not_known_yet_reach_the_caller_as_they_are(run) -> None:
    session = run()
    text = '{"type":"response.of_next_year","new":1}'
    session.upstream.gives.put(ServerEvent(text=text))
    session.greenlet.join(0.02)
    assert session.caller.sent == [text]


def test_a_provider_that_takes_nothing_unread_is_read_on_when_the_caller_left(run) -> None:
    session = run()
    session.turns.busy, sent_pieces = True, []

    def take(event: ServerEvent) -> None:
        sent_pieces.append(event.kind)
        session.turns.busy = event.kind != "done"

    session.turns.take = take
    session.upstream.send = lambda text: Queue().get()
    session.caller.abort()
    session.greenlet.join(0.02)
    session.upstream.gives.put(ServerEvent("started", "resp_1"))
    session.upstream.gives.put(ServerEvent("done", "resp_1"))
    session.greenlet.join(60)
    assert sent_pieces == ["started", "done"] and session.greenlet.ready()


class Message(str):
    """A text that can be referred to weakly."""


@pytest.mark.parametrize("of_provider", [False, True])
def test_idle_session_holds_no_message(run, of_provider: bool) -> None:
    session = run()
    message = Message(
        json.dumps({"type": "session.update", "session": {"type": "realtime", "instructions": "x" * 999}})
    )
    held = weakref.ref(message)
    if of_provider:
        session.upstream.gives.put(ServerEvent("", text=message))
        receiver = session.caller
    else:
        session.caller.gives.put(message)
        receiver = session.upstream
    del message
    session.greenlet.join(0.05)
    assert receiver.sent.pop()
    gc.collect()
    assert held() is None
