"""Metrics have a port of their own, and a port that somebody else has is no reason not to serve."""

import logging
import socket

import httpx
import pytest

from gateway.server.metrics_port import MetricsPort, open_metrics_port


def expose() -> tuple[str, bytes]:
    return "text/plain", b"up 1\n"


def test_several_workers_listen_at_one_port_and_any_of_them_answers() -> None:
    first = MetricsPort("127.0.0.1", 0, expose)
    second = MetricsPort("127.0.0.1", first.port, expose)
    assert httpx.get(f"http://127.0.0.1:{first.port}/metrics").text == "up 1\n"
    assert httpx.post(f"http://127.0.0.1:{first.port}/metrics").status_code == 404
    first.close()
    assert httpx.get(f"http://127.0.0.1:{second.port}/metrics").text == "up 1\n"
    second.close()


def test_a_port_that_another_program_has_is_one_line_with_a_remedy(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("gateway").propagate = True
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert open_metrics_port("127.0.0.1", port, expose) is None
    # What is logged once may be captured at two loggers, as other tests left them.
    (line,) = {record.created: record for record in caplog.records if record.name == "gateway.server"}.values()
    assert str(port) in line.getMessage() and "GATEWAY_METRICS_PORT" in line.remedy  # type: ignore[attr-defined]
