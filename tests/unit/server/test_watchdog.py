"""The watchdog reports how late the loop is and which request caused it, without secrets."""

import logging
import time

import gevent
import pytest

from gateway.callers.authentication import Caller
from gateway.server import watchdog
from gateway.server.watchdog import Watchdog
from gateway.surfaces.web.http import Inbound

HEADERS = {"authorization": "Bearer llmgtwy_secret-secret"}


@pytest.fixture
def watching():
    watchdog = Watchdog(0.1)
    watchdog.start()
    gevent.sleep(0.1)
    yield watchdog
    watchdog.stop()


class Context:
    caller = Caller("key_7", "user", "", "org_1", "proj_1", "usr_1", "mem_1", "owner", "credits")


def block_loop(seconds):
    """Work for so long on the processor, however busy the machine is."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def handle(inbound, context):
    block_loop(0.5)


def test_a_request_that_holds_the_loop_is_named_in_the_log(watching, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("gateway"), "propagate", True)
    # The watchdog reads local variables by their names, here those of `handle` alone.
    request = Inbound("POST", "/v1/x\ny", HEADERS, b"private words", "token=hidden", request_id="a" * 32)

    def read_lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if "blocked" in record.getMessage()]

    with caplog.at_level(logging.WARNING):
        gevent.spawn(handle, request, Context()).join()
        wait_for(read_lines)
    line = read_lines()[0]
    assert f"POST /v1/x\\ny, request {'a' * 32}, key key_7" in line and "\n" not in line
    assert not any(word in line for word in ("secret", "private", "hidden"))
    figures = {name: value for name, (_, value) in watching.gauges().items()}
    assert figures["loop_lag_seconds"] > 0.3 and figures["loop_held"] >= 1 and figures["loop_held_seconds"] > 0.3
    assert figures["loop_busy_seconds"] > 0.1 and figures["resident_bytes"] > 1_000_000


def test_work_that_yields_holds_nothing(watching):
    end = time.thread_time() + 0.3
    while time.thread_time() < end:
        gevent.sleep(0)
    gevent.sleep(0.1)
    assert watching.gauges()["loop_busy_seconds"][1] < 0.3


def test_lines_are_few_however_often_the_loop_is_held(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("gateway"), "propagate", True)
    watchdog = Watchdog(0.1)
    with caplog.at_level(logging.WARNING):
        for number in range(50):
            watchdog._log_hold(100.0 + number / 100, 0.5, 0.5, "GET /x")
        watchdog._log_hold(102.0, 0.5, 0.5, "GET /x")
    # Each record counts once, because pytest may have put its handler in two places.
    lines = list(dict.fromkeys(caplog.records))
    assert len(lines) == 2 and "49 more" in lines[1].getMessage()


def test_blocking_work_outside_of_requests_is_reported_by_its_place():
    found = []

    def look():
        found.append(watchdog.describe(watchdog.sys._getframe()))
        return ""

    look()
    assert found[0].startswith("background work at ")


def test_a_pause_without_cpu_time_is_reported_as_the_machines(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("gateway"), "propagate", True)
    watchdog = Watchdog(0.1)
    with caplog.at_level(logging.WARNING):
        watchdog._at, watchdog._cpu = time.perf_counter() - 5.0, time.thread_time()
        watchdog._beat()
    assert "the machine gave it no CPU time" in caplog.records[-1].getMessage()


@pytest.mark.slow
def test_a_worker_without_connections_is_watched_by_rare_heartbeats_until_the_next_one(monkeypatch):
    beats = []
    beat = Watchdog._beat
    monkeypatch.setattr(Watchdog, "_beat", lambda self: beats.append(self._every_s) or beat(self))
    made = Watchdog(0.1)
    made.start()
    try:
        wait_for(lambda: watchdog.HEARTBEAT_INTERVAL_S in beats)
        for _ in range(watchdog.QUIET_TICKS):
            made.tick(0)
        beats.clear()
        wait_for(lambda: len(beats) > 1)
        assert set(beats) == {watchdog.RESTING_HEARTBEAT_INTERVAL_S}
        # Held while it rests: heartbeats are rare, and still notice it.
        gevent.spawn(block_loop, watchdog.RESTING_HEARTBEAT_INTERVAL_S + 0.3).join()
        wait_for(lambda: made.gauges()["loop_held"][1] >= 1)
        made.speed_up()
        beats.clear()
        wait_for(lambda: len(beats) > 1)
        assert set(beats) == {watchdog.HEARTBEAT_INTERVAL_S}
        for _ in range(watchdog.QUIET_TICKS - 1):
            made.tick(0)
        made.tick(1)
        made.tick(0)
        assert made._every_s == watchdog.HEARTBEAT_INTERVAL_S
    finally:
        made.stop()


def wait_for(condition):
    with gevent.Timeout(60, RuntimeError("it did not happen")):
        while not condition():
            gevent.sleep(0.01)
