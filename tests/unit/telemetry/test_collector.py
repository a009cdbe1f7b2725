"""A collector that is away is one line, and one more when it is back; requests do not notice."""

from typing import Any

from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.trace.export import SpanExportResult

from gateway.runtime.state_changes import StateLog
from gateway.telemetry.collector import WatchedExporter


class Exporter:
    """An exporter with a configurable result."""

    temporality = "cumulative"

    def __init__(self) -> None:
        self.result: Any = SpanExportResult.SUCCESS

    def export(self, batch: object, timeout_millis: float = 1) -> Any:
        return self.result


def test_a_collector_that_is_away_is_reported_once_for_traces_and_metrics_together() -> None:
    states, told = StateLog(), []
    states.subscribe(lambda change: told.append(change.event))
    spans, metrics = Exporter(), Exporter()
    watched = [WatchedExporter(spans, states), WatchedExporter(metrics, states)]
    spans.result, metrics.result = SpanExportResult.FAILURE, MetricExportResult.FAILURE
    for _ in range(3):
        assert [one.export((), timeout_millis=5).name for one in watched] == ["FAILURE", "FAILURE"]
    assert told == ["collector.away"]
    spans.result, metrics.result = SpanExportResult.SUCCESS, MetricExportResult.SUCCESS
    for _ in range(3):
        assert [one.export(()).name for one in watched] == ["SUCCESS", "SUCCESS"]
    assert told == ["collector.away", "collector.back"] and watched[0].temporality == "cumulative"
