"""Exports of coding agents' telemetry, as OpenTelemetry's SDK serializes them."""

from collections.abc import Mapping
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from gateway.metering.outcomes.names import OUTCOMES
from gateway.metering.outcomes.outcome_table import ADD
from gateway.store.database import Database

DELTA, CUMULATIVE = 1, 2
US = 1_000  # nanoseconds


class MetricExport:
    """An export of metrics that tests build up; `start_us` and `time_us` are those of the points that follow."""

    def __init__(self, start_us: int, time_us: int, temporality: int = DELTA, **resource: str) -> None:
        self.start_us = start_us
        self.time_us = time_us
        self.temporality = temporality
        self.message = ExportMetricsServiceRequest()
        self._group = self.message.resource_metrics.add()
        _add_attributes(self._group.resource, {"service.name": "agent", **resource})
        self._scope = self._group.scope_metrics.add()

    def add(self, name: str, amount: float, monotonic: bool = True, **attributes: Any) -> "MetricExport":
        """Add a point of a sum; names of attributes have dots instead of double underscores."""
        metric = self._scope.metrics.add(name=name)
        metric.sum.aggregation_temporality = self.temporality
        metric.sum.is_monotonic = monotonic
        point = metric.sum.data_points.add(start_time_unix_nano=self.start_us * US, time_unix_nano=self.time_us * US)
        if isinstance(amount, int):
            point.as_int = amount
        else:
            point.as_double = amount
        _add_attributes(point, {key.replace("__", "."): value for key, value in attributes.items()})
        return self

    @property
    def protobuf(self) -> bytes:
        return self.message.SerializeToString()

    @property
    def json(self) -> dict[str, Any]:
        """The export in OTLP's JSON: enums are numbers."""
        return MessageToDict(self.message, use_integers_for_enums=True)


def log_export(time_us: int, *events: Mapping[str, Any]) -> ExportLogsServiceRequest:
    """Return an export of log records; each event is the attributes of one."""
    message = ExportLogsServiceRequest()
    scope = message.resource_logs.add().scope_logs.add()
    for event in events:
        record = scope.log_records.add(time_unix_nano=time_us * US)
        _add_attributes(record, event)
    return message


def _add_attributes(holder: Any, attributes: Mapping[str, Any]) -> None:
    for key, value in attributes.items():
        pair = holder.attributes.add(key=key)
        if isinstance(value, bool):
            pair.value.bool_value = value
        elif isinstance(value, int):
            pair.value.int_value = value
        else:
            pair.value.string_value = value


def add_outcomes(
    database: Database,
    owners: tuple[bytes, bytes, bytes, bytes],
    hour: int,
    session: str = "s",
    repository: str = "",
    **outcomes: int,
) -> None:
    """Add outcomes of an hour of any age; `owners` are organization, project, key and member."""
    organization, project, api_key, member = owners
    values = [outcomes.get(name, 0) for name in OUTCOMES]
    key = (api_key, hour, session, "claude-code", "claude-sonnet-4-5")
    database.change_rows(ADD, (*key, organization, project, member, repository, *values))
