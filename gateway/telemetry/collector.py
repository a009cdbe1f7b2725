"""The OpenTelemetry collector as the log tells of it: once that it is away and once that it is back, in the place of
the SDK's lines for every batch."""

import logging
from typing import Any

from gateway.states import INFO, StateChange, StateLog

SUBJECT = "collector"
REMEDY = "start it, or check OTEL_EXPORTER_OTLP_ENDPOINT; requests are served, their traces and metrics are lost"
AWAY = StateChange(
    "collector.away", SUBJECT, "the OpenTelemetry collector does not take what it is sent", remedy=REMEDY
)
BACK = StateChange("collector.back", SUBJECT, "the OpenTelemetry collector answers again", INFO)


class WatchedExporter:
    """An exporter of the SDK whose results are told to `states`; in all else the `inner` one."""

    def __init__(self, inner: Any, states: StateLog) -> None:
        self._inner, self._states = inner, states

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def export(self, *batch: Any, **more: Any) -> Any:
        """What the inner one answers."""
        result = self._inner.export(*batch, **more)
        if result.name == "SUCCESS":
            self._states.resolve(BACK)
        else:
            self._states.fire(AWAY)
        return result


def hush() -> None:
    """Keep the SDK's own lines on failed batches out of the log."""
    logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
