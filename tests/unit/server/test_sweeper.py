"""The sweep ends what nobody waits for, once, and nothing younger than a tick."""

from datetime import UTC, datetime

import pytest

from gateway.server.connection import ANSWERING, IDLE, READING
from gateway.server.pulse import ClientGone, Pulse
from gateway.server.sweeper import Sweeper


class StoppedClock:
    def now(self):
        return datetime(2026, 1, 15, 8, 30, tzinfo=UTC)


class Standing:
    """A connection that stands still."""

    def __init__(self, phase, gone=False):
        self.phase, self.gone = phase, gone
        self.since, self.sending, self.peekable, self.received = 1, 0, True, 0
        self.expired = self.killed = False
        self.greenlet, self.ended = self, []

    def expire(self):
        self.expired = True

    def is_gone(self):
        return self.gone

    def kill(self, reason, block):
        self.ended.append(type(reason))


def sweep(connection, times):
    sweeper = Sweeper(Pulse(StoppedClock()), keepalive_s=1, head_s=2, send_s=3, body_s=5, least_rate=400)
    for _ in range(times):
        sweeper.sweep([connection])
    return connection


def test_date_line_is_an_http_date():
    assert Pulse(StoppedClock()).date == "Date: Thu, 15 Jan 2026 08:30:00 GMT"


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


def test_caller_that_stopped_reading_is_ended():
    stuck = Standing(ANSWERING)
    stuck.sending = 1
    assert sweep(stuck, 12).ended == [] and sweep(stuck, 13).ended == [ClientGone]


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


def test_who_waits_longest_makes_room_and_who_is_answered_stays():
    standing = [Standing(phase) for phase in (IDLE, IDLE, READING, ANSWERING)]
    for number, one in enumerate(standing):
        one.since = -number
    sweeper = Sweeper(Pulse(StoppedClock()), keepalive_s=1)
    sweeper.shed(standing, room=3)
    assert [one.expired for one in standing] == [False, True, False, False]
    sweeper.shed(standing, room=1)
    assert [one.expired for one in standing] == [True, True, True, False]
    sweeper.shed(standing, room=0)
    assert not standing[3].expired
