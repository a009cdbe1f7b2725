"""Exports are forwarded in the background; memory and repetitions are limited, and every outcome is counted."""

from dataclasses import replace

import gevent
import pytest
from gevent.event import Event

from gateway.errors import UpstreamUnreachable
from gateway.metering.counters import Counters
from gateway.runtime.state_changes import StateLog
from gateway.telemetry import agent_signals
from gateway.telemetry.agent_signals import COUNTER, AgentExport, AgentSignals, read_headers

WAIT_S = 60


class Answer:
    def __init__(self, status: int) -> None:
        self.status = status


class Collector:
    """Stands in for the HTTP client: answers with `statuses`, then 200; waits for `open` before each answer."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.calls: list[tuple] = []
        self.open = Event()
        self.open.set()

    def request(self, method, url, headers, body, **more):
        self.open.wait(WAIT_S)
        self.calls.append((method, url, headers, body, more["trusted"]))
        status = self.statuses.pop(0) if self.statuses else 200
        if not status:
            raise UpstreamUnreachable("refused")
        return Answer(status)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch) -> None:
    monkeypatch.setattr(agent_signals, "RETRY_DELAYS_S", (0.0, 0.0))


@pytest.fixture
def make(tmp_path, settings):
    def build(collector: Collector, endpoint: str = "http://collector:4318/", **environment: str):
        otel = replace(settings().otel, endpoint=endpoint)
        counters = Counters(tmp_path)
        return AgentSignals(otel, environment, collector, counters, StateLog()), counters

    return build


def outcomes(counters: Counters) -> dict[str, float]:
    return {labels[1]: value for labels, value in counters.totals().get(COUNTER, {}).items()}


def wait_for(counters: Counters, **expected: int) -> None:
    with gevent.Timeout(WAIT_S):
        while outcomes(counters) != expected:
            gevent.sleep(0.01)


def export(size: int = 10, organization: str = "org_1") -> AgentExport:
    return AgentExport("logs", "application/x-protobuf", b"x" * size, organization)


def test_an_export_is_forwarded_with_the_operators_headers(make) -> None:
    collector = Collector()
    signals, counters = make(collector, OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20a%3Db,x-team=ops")
    signals.take(export())
    wait_for(counters, forwarded=1)
    ((method, url, headers, body, trusted),) = collector.calls
    assert (method, url, body, trusted) == ("POST", "http://collector:4318/v1/logs", b"x" * 10, True)
    assert headers["authorization"] == "Bearer a=b" and headers["x-team"] == "ops"
    assert headers["content-type"] == "application/x-protobuf"


def test_without_a_collector_exports_are_counted_only(make) -> None:
    collector = Collector()
    signals, counters = make(collector, endpoint="")
    signals.take(export())
    assert not signals.forwards and outcomes(counters) == {"discarded": 1} and not collector.calls


@pytest.mark.parametrize(
    ("statuses", "outcome", "calls"),
    [
        *(((503, 0), "forwarded", 3), ((503, 503, 429), "failed", 3), ((400,), "failed", 1)),
        *(((status,), "forwarded", 2) for status in (429, 502, 503, 504)),
    ],
)
def test_an_export_is_repeated_only_while_the_collector_is_away(make, statuses, outcome, calls) -> None:
    collector = Collector(*statuses)
    signals, counters = make(collector)
    signals.take(export())
    wait_for(counters, **{outcome: 1})
    assert len(collector.calls) == calls


def test_waiting_exports_are_limited_for_each_organization_and_in_all(make, monkeypatch) -> None:
    monkeypatch.setattr(agent_signals, "WAITING_BYTES", 100)
    monkeypatch.setattr(agent_signals, "ORGANIZATION_BYTES", 40)
    monkeypatch.setattr(agent_signals, "EXPORT_BYTES", 0)
    collector = Collector()
    collector.open.clear()
    signals, counters = make(collector)
    for _ in range(3):
        signals.take(export(20))
    assert outcomes(counters) == {"dropped": 1}
    signals.take(export(40, "org_2"))
    signals.take(export(30, "org_3"))
    assert outcomes(counters) == {"dropped": 2}
    collector.open.set()
    wait_for(counters, dropped=2, forwarded=3)
    signals.take(export(40))
    wait_for(counters, dropped=2, forwarded=4)


def test_empty_exports_are_limited_too(make) -> None:
    """An empty body has no bytes: without a collector that answers, any number of exports waited in memory."""
    collector = Collector()
    collector.open.clear()
    signals, counters = make(collector)
    count = agent_signals.ORGANIZATION_BYTES // agent_signals.EXPORT_BYTES
    for _ in range(count + 10):
        signals.take(export(0))
    assert outcomes(counters) == {"dropped": 10}


def test_an_organization_with_many_exports_delays_others_by_one(make) -> None:
    collector = Collector()
    collector.open.clear()
    signals, counters = make(collector)
    for _ in range(50):
        signals.take(export())
    gevent.sleep(0)  # the senders have one each
    signals.take(export(99, "org_2"))
    collector.open.set()
    wait_for(counters, forwarded=51)
    bodies = [call[3] for call in collector.calls]
    assert bodies.index(b"x" * 99) < 5


@pytest.mark.parametrize("text", ["", "nothing", "=value", ","])
def test_malformed_headers_are_ignored(text: str) -> None:
    assert read_headers(text) == {}
