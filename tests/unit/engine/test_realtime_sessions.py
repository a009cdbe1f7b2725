"""Ends of a realtime session: timeouts, a closed side, and a provider that accepts no data."""

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from gevent.event import Event
from gevent.queue import Queue
from support.clock import FakeClock

from gateway.configuration.settings import load
from gateway.engine.realtime import session as sessions
from gateway.engine.realtime import watched_session
from gateway.engine.realtime.session import RealtimeSession, SessionLimits, SessionWatch
from gateway.errors import RateLimited
from gateway.neutral.realtime import ServerEvent, SessionLock
from gateway.runtime.threads import spawn
from gateway.surfaces.openai.realtime_events import OpenAIEvents
from gateway.transport.handshakes import LOST, SocketClosed

HOUR_S, IDLE_S = 3600, 900


class Side:
    """One side of a session, as a socket and as a link: a list of the messages sent to it, and `gives` for its own."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.gives: Queue = Queue()
        self.pings = self.received_count = 0
        self.code, self.reason, self.closed, self.deaf = LOST, "", 0, False

    def receive(self) -> Any:
        return self.gives.get()

    def send(self, text: str) -> None:
        if self.deaf:
            raise SocketClosed
        self.told.append(text)

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


class Running:
    """A session in its greenlet, between two sides."""

    def __init__(self, longest_s: float, idle_s: float) -> None:
        self.clock, self.caller, self.upstream, self.turns = FakeClock(), Side(), Side(), Turns()
        limits = SessionLimits(longest_s, idle_s)
        watch = SessionWatch(lambda: "caller", lambda caller: None, lambda: False, (), set(), limits, self.clock)
        events = OpenAIEvents("realtime", frozenset(), str, SessionLock(), load({}).limits)
        self.session = RealtimeSession(self.upstream, self.turns, events, watch)
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
        return json.loads(self.caller.told[-1])["error"]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(watched_session, "LOOK_S", 0.01)
    monkeypatch.setattr(sessions, "ANSWER_S", 0.01)
    running: list[Running] = []

    def begin(longest_s: float = HOUR_S, idle_s: float = IDLE_S) -> Running:
        running.append(Running(longest_s, idle_s))
        return running[-1]

    yield begin
    for one in running:
        one.greenlet.kill()


def test_a_session_ends_after_an_hour_however_much_is_said(run) -> None:
    one = run(idle_s=0)
    for _ in range(3):
        one.pass_time(HOUR_S / 3 - 1)
        assert one.caller.told == [] and not one.greenlet.ready()
    one.clock.advance(3)
    error = one.end()
    assert (error["code"], error["type"]) == ("session_expired", "invalid_request_error")
    assert (one.caller.closed, one.caller.reason) == (1008, "session_expired")
    assert one.turns.closed_by and set(one.turns.closed_by) == {None}


def test_a_session_without_an_event_of_its_caller_ends(run) -> None:
    one = run()
    one.pass_time(IDLE_S - 1)
    one.caller.gives.put('{"type": "input_audio_buffer.clear"}')
    one.greenlet.join(0.01)
    one.pass_time(IDLE_S - 1)
    assert not one.greenlet.ready() and len(one.upstream.told) == 1
    one.clock.advance(2)
    assert one.end()["code"] == "session_idle"


def test_a_provider_that_accepts_nothing_is_reported_as_disconnected(run) -> None:
    one = run()
    one.upstream.deaf = True
    one.caller.gives.put('{"type": "input_audio_buffer.clear"}')
    assert one.end()["code"] == "stream_truncated"
    assert one.caller.closed == 1011
    assert [error.code for error in one.turns.closed_by if error] == ["stream_truncated"]


def test_a_provider_that_answers_no_ping_is_gone(run) -> None:
    one = run(idle_s=0)
    for _ in range(8):
        one.clock.advance(10)
        one.caller.received_count += 1
        one.greenlet.join(0.03)
    assert one.end()["code"] == "stream_truncated" and one.upstream.pings >= 3


def test_invalid_client_events_are_refused_with_their_id(run) -> None:
    one = run()
    one.caller.gives.put('{"type": "response.steal", "event_id": "mine"}')
    one.greenlet.join(0.02)
    assert json.loads(one.caller.told[0])["error"]["event_id"] == "mine" and one.upstream.told == []


def test_waiting_senders_are_released_when_the_provider_is_no_longer_read(run) -> None:
    one, over = run(), Event()

    def send(text: str) -> None:
        over.wait()
        raise SocketClosed

    one.upstream.send, one.upstream.abort = send, over.set
    one.caller.gives.put('{"type": "input_audio_buffer.clear"}')
    one.greenlet.join(0.02)
    one.caller.deaf = True
    one.upstream.gives.put(ServerEvent(text="{}"))
    one.greenlet.join(60)
    assert one.greenlet.ready()


def test_a_change_that_was_not_let_through_is_not_waited_for(run) -> None:
    one, refused = run(), []

    def grow() -> None:
        raise RateLimited("Later.")

    one.turns.grow, one.turns.settings.refused = grow, refused.append
    one.caller.gives.put('{"type": "session.update", "event_id": "mine", "session": {}}')
    one.greenlet.join(0.02)
    assert refused == ["mine"] and json.loads(one.caller.told[0])["error"]["event_id"] == "mine"
    assert one.upstream.told == []


def test_events_that_are_not_known_yet_reach_the_caller_as_they_are(run) -> None:
    one = run()
    text = '{"type":"response.of_next_year","new":1}'
    one.upstream.gives.put(ServerEvent(text=text))
    one.greenlet.join(0.02)
    assert one.caller.told == [text]


def test_a_provider_that_takes_nothing_unread_is_read_on_when_the_caller_left(run) -> None:
    one = run()
    one.turns.busy, taken = True, []

    def take(event: ServerEvent) -> None:
        taken.append(event.kind)
        one.turns.busy = event.kind != "done"

    one.turns.take = take
    one.upstream.send = lambda text: Queue().get()
    one.caller.abort()
    one.greenlet.join(0.02)
    one.upstream.gives.put(ServerEvent("started", "resp_1"))
    one.upstream.gives.put(ServerEvent("done", "resp_1"))
    one.greenlet.join(60)
    assert taken == ["started", "done"] and one.greenlet.ready()
