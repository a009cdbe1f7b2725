"""Logs outages of the OpenTelemetry collector, once at the beginning and once at the end, instead of the SDK's line for
every batch."""

import logging
from typing import Any

from gateway.runtime.state_changes import INFO, StateChange, StateLog

SUBJECT = "collector"
REMEDY = "start it, or check OTEL_EXPORTER_OTLP_ENDPOINT; requests are served, their traces and metrics are lost"
COLLECTOR_AWAY = StateChange(
    "collector.away", SUBJECT, "the OpenTelemetry collector does not take what it is sent", remedy=REMEDY
)
COLLECTOR_BACK = StateChange("collector.back", SUBJECT, "the OpenTelemetry collector answers again", INFO)


class WatchedExporter:
    """Wraps an exporter of the SDK and reports its results to `states`; otherwise behaves like `inner`."""

    def __init__(self, inner: Any, states: StateLog) -> None:
        self._inner = inner
        self._states = states

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def export(self, *batch: Any, **more: Any) -> Any:
        """Export with the inner exporter and report its result."""
        result = self._inner.export(*batch, **more)
        if result.name == "SUCCESS":
            self._states.resolve(COLLECTOR_BACK)
        else:
            self._states.fire(COLLECTOR_AWAY)
        return result


def silence_export_errors() -> None:
    """Suppress the SDK's own log lines about failed batches."""
    logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
