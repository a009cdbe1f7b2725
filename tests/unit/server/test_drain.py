"""The end of a worker under open streams, idle connections and long requests."""

import contextlib
import signal
import time

import pytest
from support.small_server import GRACE_S

from gateway.server.drain import make_plan

pytestmark = pytest.mark.slow


def test_plan_leaves_time_to_settle_before_the_kill():
    plan = make_plan(100.0, 60.0)
    assert plan.stop_accepting_at == 101.0 and plan.cut_at == 158.0
    assert plan.cut_at < plan.close_at < plan.leave_at < 160.0


def test_plan_of_a_short_grace_keeps_its_order():
    plan = make_plan(0.0, 1.0)
    assert 0 < plan.stop_accepting_at < plan.cut_at < plan.close_at < plan.leave_at < 1.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_cuts_no_stream_and_closes_the_idle(leaving_server, number):
    idle = leaving_server.call()
    stream = leaving_server.call().get("/stream?12,0.1")
    idle.get("/ready").reply()
    stream.until(b"item 0")
    leaving_server.signal(number)
    began = time.monotonic()
    assert idle.rest() == b"" and time.monotonic() - began < GRACE_S / 2
    assert stream.rest().endswith(b"item 11\n\r\n0\r\n\r\n")
    assert leaving_server.wait() == 0 and time.monotonic() - began < GRACE_S / 2
    assert leaving_server.lines()[-1] == "application closed"


def test_readiness_turns_before_the_listener_closes(leaving_server):
    held = leaving_server.call().get("/silent?1")
    leaving_server.wait_for("began")
    leaving_server.signal()
    leaving_server.wait_for("draining")
    status, headers, _ = leaving_server.call().get("/ready").reply()
    assert (status, headers["connection"]) == (503, "close")
    assert held.reply()[0] == 200
    until = time.monotonic() + 10
    with pytest.raises(OSError):
        while time.monotonic() < until:  # the listener closes a moment after the readiness turned
            leaving_server.call().close()
            time.sleep(0.05)


def test_long_request_is_settled_before_the_worker_leaves(hasty_server):
    stream = hasty_server.call().get("/stream?1000,0.1")
    held = hasty_server.call().get("/silent?60")
    hasty_server.wait_for("began")
    hasty_server.signal(signal.SIGQUIT)
    assert held.reply()[0] == 503
    assert not stream.rest().endswith(b"0\r\n\r\n")
    assert hasty_server.wait() == 0
    wanted = {"cut ServerStopping", "closed stream", "settled", "application closed"}
    assert wanted <= set(hasty_server.lines())
    assert hasty_server.lines()[-1] == "application closed"


def test_second_interrupt_hurries_but_still_settles(leaving_server):
    held = leaving_server.call().get("/silent?60")
    leaving_server.wait_for("began")
    leaving_server.signal(signal.SIGTERM)
    time.sleep(1.3)
    leaving_server.signal(signal.SIGINT)
    began = time.monotonic()
    assert held.reply()[0] == 503 and leaving_server.wait() == 0 and time.monotonic() - began < GRACE_S / 2
    assert {"settled", "application closed"} <= set(leaving_server.lines())


def test_reload_under_load_loses_no_request(leaving_server):
    failed = []
    served = 0
    leaving_server.signal(signal.SIGHUP)
    while served <= 50 or "application closed" not in leaving_server.lines():
        try:
            caller = leaving_server.call()
            answer = caller.get("/stream?2,0.001", "Connection: close").rest()
            caller.close()
        except OSError as error:
            failed.append(error)
            continue
        served += 1
        if not answer.endswith(b"0\r\n\r\n"):
            failed.append(answer)
    assert not failed


def test_request_on_a_connection_accepted_at_the_last_moment_is_served(leaving_server):
    held = leaving_server.call().get("/silent?3")
    leaving_server.wait_for("began")
    leaving_server.signal()
    leaving_server.wait_for("draining")
    callers = []
    with contextlib.suppress(OSError):
        while True:  # until the listener closes
            callers.append(leaving_server.call())
            time.sleep(0.02)
    time.sleep(0.2)  # several rounds of closing idle connections
    assert callers[-1].get("/ready").reply()[0] == 503
    assert held.reply()[0] == 200 and leaving_server.wait() == 0
