"""The timeout sweep ends abandoned connections, once, and nothing younger than a tick."""

import gevent
import pytest

from gateway.server import connection as connection_module
from gateway.server.connection import ANSWERING, IDLE, READING, ClientGone, SendProgress, WorkerState
from gateway.server.connection_timeouts import TimeoutSweeper


class StoppedClock:
    def __init__(self):
        self.second = 1_768_465_800  # 2026-01-15, 8:30

    def now_us(self):
        return self.second * 1_000_000


class Standing:
    """A connection that stands still."""

    def __init__(self, phase, gone=False):
        self.phase, self.gone = phase, gone
        self.since, self.progress, self.peekable, self.received = 1, None, True, 0
        self.expired = self.killed = self.dead = False
        self.greenlet, self.ended = self, []

    def expire(self):
        self.expired = True

    def is_gone(self):
        return self.gone

    def kill(self, reason, block):
        self.ended.append(type(reason))

    def throw(self, reason):
        self.ended.append(type(reason))


def sweep(connection, times):
    sweeper = TimeoutSweeper(
        WorkerState(StoppedClock()), keepalive_s=1, head_s=2, stall_s=3, body_s=5, min_rate=400, answer_rate=400
    )
    for _ in range(times):
        sweeper.sweep([connection])
        gevent.sleep(0)  # the event loop ends the request
    return connection


def test_date_line_is_an_http_date():
    clock = StoppedClock()
    state = WorkerState(clock)
    assert state.date == "Date: Thu, 15 Jan 2026 08:30:00 GMT"
    clock.second += 61
    state.advance()
    assert state.date == "Date: Thu, 15 Jan 2026 08:31:01 GMT"


@pytest.mark.parametrize(("phase", "allowed"), [(IDLE, 4), (READING, 8)])
def test_waiting_connection_expires_only_after_its_time(phase, allowed):
    assert not sweep(Standing(phase), allowed).expired
    assert sweep(Standing(phase), allowed + 1).expired


def test_gone_caller_is_ended_once():
    assert sweep(Standing(ANSWERING, gone=True), 5).ended == [ClientGone]


def test_request_younger_than_a_tick_is_left_alone():
    young = Standing(ANSWERING, gone=True)
    young.since = 2
    assert sweep(young, 1).ended == []


def test_caller_behind_tls_is_not_peeked_at():
    hidden = Standing(ANSWERING, gone=True)
    hidden.peekable = False
    assert sweep(hidden, 5).ended == []


@pytest.fixture
def kernel(monkeypatch):
    """Set the number of bytes of an answer that the kernel still holds."""
    held = {"bytes": 0}
    monkeypatch.setattr(connection_module, "queued", lambda sock: held["bytes"])
    return held


def wait_for(taking, kernel, ticks, progress=None):
    """Return the connection of a caller with 10 MB pending, who reads `taking` bytes a tick, after `ticks` ticks."""
    connection = Standing(ANSWERING)
    connection.progress = progress or SendProgress(0)
    kernel["bytes"] = 10_000_000
    sweeper = TimeoutSweeper(WorkerState(StoppedClock()), keepalive_s=1, stall_s=3, answer_rate=400)
    connection.progress.begin(1)
    for _ in range(ticks):
        kernel["bytes"] -= taking
        sweeper.sweep([connection])
        gevent.sleep(0)  # the event loop ends the request
    return connection


def test_caller_that_stopped_reading_is_ended(kernel):
    assert wait_for(0, kernel, 12).ended == [] and wait_for(0, kernel, 13).ended == [ClientGone]


def test_caller_that_reads_a_byte_now_and_then_is_ended_and_a_slow_one_is_not(kernel):
    # 400 bytes a second are 100 a tick.
    assert wait_for(1, kernel, 12).ended == [] and wait_for(1, kernel, 14).ended == [ClientGone]
    assert wait_for(100, kernel, 200).ended == []


def test_waits_for_one_answer_count_together_and_those_of_ours_do_not(kernel):
    progress = SendProgress(0)
    progress.begin(1)
    progress.end(9)
    assert wait_for(1, kernel, 3, progress).ended == [] and wait_for(1, kernel, 14, SendProgress(0)).ended
    progress = SendProgress(0)
    progress.begin(1)
    progress.end(11)
    assert wait_for(1, kernel, 4, progress).ended == [ClientGone]


def test_callers_of_a_silent_provider_are_not_disconnected(kernel):
    connection = wait_for(0, kernel, 3)
    connection.progress.end(4)
    assert sweep(connection, 100).ended == []


def test_body_that_trickles_is_late_and_one_that_flows_has_its_time():
    trickling, flowing = Standing(READING), Standing(READING)
    # 400 bytes a second are 100 a tick: 600 bytes earn six ticks beyond the eight of the head.
    flowing.received = 600
    assert sweep(trickling, 9).expired
    assert not sweep(flowing, 14).expired and sweep(flowing, 15).expired


def test_no_body_lasts_beyond_the_end_however_it_flows():
    flowing = Standing(READING)
    flowing.received = 10**9
    assert not sweep(flowing, 20).expired and sweep(flowing, 21).expired


def test_the_longest_idle_connection_makes_room_and_active_ones_stay():
    standing = [Standing(phase) for phase in (IDLE, IDLE, READING, ANSWERING)]
    for number, one in enumerate(standing):
        one.since = -number
    sweeper = TimeoutSweeper(WorkerState(StoppedClock()), keepalive_s=1)
    sweeper.close_idle(standing, room=3)
    assert [one.expired for one in standing] == [False, True, False, False]
    sweeper.close_idle(standing, room=1)
    assert [one.expired for one in standing] == [True, True, True, False]
    sweeper.close_idle(standing, room=0)
    assert not standing[3].expired
