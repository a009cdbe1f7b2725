"""Metrics have a separate port; the gateway serves even when that port is in use."""

import logging
import socket

import gevent
import httpx
import pytest
from gevent.event import Event

from gateway.server import metrics_port
from gateway.server.metrics_port import MetricsPort, open_metrics_port


def expose() -> tuple[str, bytes]:
    return "text/plain", b"up 1\n"


def test_several_workers_listen_at_one_port_and_any_of_them_answers() -> None:
    first = MetricsPort("127.0.0.1", 0, expose)
    second = MetricsPort("127.0.0.1", first.port, expose)
    assert httpx.get(f"http://127.0.0.1:{first.port}/metrics", timeout=60).text == "up 1\n"
    assert httpx.post(f"http://127.0.0.1:{first.port}/metrics", timeout=60).status_code == 404
    first.close()
    assert httpx.get(f"http://127.0.0.1:{second.port}/metrics", timeout=60).text == "up 1\n"
    assert httpx.get(f"http://127.0.0.1:{second.port}/", timeout=60).text == "up 1\n"
    second.close()


def test_idle_connections_are_few_and_closed_so_that_scrapes_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_port, "MAX_REQUEST_S", 0.2)
    port = MetricsPort("127.0.0.1", 0, expose)
    idle = [socket.create_connection(("127.0.0.1", port.port)) for _ in range(20)]
    for one in idle:
        one.sendall(b"GET /metrics HTTP/1.1\r\n")
    try:
        assert httpx.get(f"http://127.0.0.1:{port.port}/metrics", timeout=60).text == "up 1\n"
        assert idle[0].recv(1) == b""
    finally:
        for one in idle:
            one.close()
        port.close()


def test_scrapers_that_come_together_share_one_answer() -> None:
    made, go_on = [], Event()

    def expose_slowly() -> tuple[str, bytes]:
        made.append(1)
        go_on.wait(60)
        return expose()

    port = MetricsPort("127.0.0.1", 0, expose_slowly)
    asking = [gevent.spawn(httpx.get, f"http://127.0.0.1:{port.port}/metrics", timeout=60) for _ in range(8)]
    while len(port._server.pool) < 8 or not made:
        gevent.sleep(0.01)
    go_on.set()
    gevent.joinall(asking)
    port.close()
    assert [one.value.text for one in asking] == ["up 1\n"] * 8 and len(made) == 1


def test_a_port_that_another_program_has_is_one_line_with_a_remedy(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("gateway").propagate = True
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert open_metrics_port("127.0.0.1", port, expose) is None
    # One log record may be captured at two loggers, because of the state that other tests left.
    (line,) = {record.created: record for record in caplog.records if record.name == "gateway.server"}.values()
    assert str(port) in line.getMessage() and "GATEWAY_METRICS_PORT" in line.remedy  # type: ignore[attr-defined]
