"""The end of a worker under open streams, idle connections and long requests."""

import signal
import time

import pytest

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
    idle, stream = leaving_server.call(), leaving_server.call().get("/stream?12,0.1")
    idle.get("/ready").reply()
    stream.until(b"item 0")
    leaving_server.signal(number)
    began = time.monotonic()
    assert idle.rest() == b"" and time.monotonic() - began < 1.5
    assert stream.rest().endswith(b"item 11\n\r\n0\r\n\r\n")
    assert leaving_server.wait() == 0 and time.monotonic() - began < 3
    assert leaving_server.lines()[-1] == "application closed"


def test_readiness_turns_before_the_listener_closes(leaving_server):
    held = leaving_server.call().get("/silent?1")
    leaving_server.wait_for("began")
    leaving_server.signal()
    leaving_server.wait_for("draining")
    status, headers, _ = leaving_server.call().get("/ready").reply()
    assert (status, headers["connection"]) == (503, "close")
    assert held.reply()[0] == 200
    with pytest.raises(OSError):
        leaving_server.call()


def test_long_request_is_settled_before_the_worker_leaves(leaving_server):
    stream, held = leaving_server.call().get("/stream?1000,0.1"), leaving_server.call().get("/silent?60")
    leaving_server.wait_for("began")
    leaving_server.signal(signal.SIGQUIT)
    assert held.reply()[0] == 503
    assert not stream.rest().endswith(b"0\r\n\r\n")
    assert leaving_server.wait() == 0
    wanted = {"cut ServerStopping", "closed stream", "settled", "application closed"}
    assert wanted <= set(leaving_server.lines())
    assert leaving_server.lines()[-1] == "application closed"


def test_second_interrupt_hurries_but_still_settles(leaving_server):
    held = leaving_server.call().get("/silent?60")
    leaving_server.wait_for("began")
    leaving_server.signal(signal.SIGTERM)
    time.sleep(1.3)
    leaving_server.signal(signal.SIGINT)
    began = time.monotonic()
    assert held.reply()[0] == 503 and leaving_server.wait() == 0 and time.monotonic() - began < 2  # of four
    assert {"settled", "application closed"} <= set(leaving_server.lines())


def test_reload_under_load_loses_no_request(leaving_server):
    deadline, failed, served = time.monotonic() + 2.0, [], 0
    leaving_server.signal(signal.SIGHUP)
    while time.monotonic() < deadline:
        try:
            caller = leaving_server.call()
            served += caller.get("/stream?2,0.001", "Connection: close").rest().endswith(b"0\r\n\r\n")
            caller.close()
        except OSError as error:
            failed.append(error)
    assert not failed and served > 50 and "application closed" in leaving_server.lines()
