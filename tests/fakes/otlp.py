"""A strict fake of a collector, which only accepts OTLP over HTTP as its protocol buffers define it."""

import gzip
from collections.abc import Iterator
from typing import Any

from fakes.server import FakeServer
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

KINDS = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


class FakeCollector(FakeServer):
    """The collector. `spans`, `metrics` and `logs` are the received messages, `resources` those of spans,
    `agent_resources` those of metrics and logs, `problems` the invalid requests, `headers` those of the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.spans: list[Any] = []
        self.metrics: list[Any] = []
        self.logs: list[Any] = []
        self.agent_resources: list[dict[str, Any]] = []
        self.headers: dict[str, str] = {}
        self.resources: list[dict[str, Any]] = []
        self.problems: list[str] = []

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        kind = KINDS.get(environ["PATH_INFO"])
        body = environ["wsgi.input"].read()
        self.headers = {name: value for name, value in environ.items() if name.startswith("HTTP_")}
        if environ.get("HTTP_CONTENT_ENCODING") == "gzip":
            body = gzip.decompress(body)
        if kind is None or environ["REQUEST_METHOD"] != "POST":
            self.problems.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
        elif environ.get("CONTENT_TYPE") != "application/x-protobuf":
            self.problems.append(f"content type {environ.get('CONTENT_TYPE')}")
        else:
            self._take(kind.FromString(body))
        start("200 OK", [("Content-Type", "application/x-protobuf"), ("Content-Length", "0")])
        return iter([b""])

    def _take(self, message: Any) -> None:
        if len(UnknownFieldSet(message)):
            self.problems.append("unknown fields")
        for group in getattr(message, "resource_spans", ()):
            self.resources.append(attributes(group.resource))
            for scope in group.scope_spans:
                for span in scope.spans:
                    self._check(span)
                    self.spans.append(span)
        for group in getattr(message, "resource_metrics", ()):
            self.agent_resources.append(attributes(group.resource))
            for scope in group.scope_metrics:
                self.metrics += scope.metrics
        for group in getattr(message, "resource_logs", ()):
            self.agent_resources.append(attributes(group.resource))
            for scope in group.scope_logs:
                self.logs += scope.log_records

    def _check(self, span: Any) -> None:
        ids = (span.trace_id, 16), (span.span_id, 8)
        self.problems += [f"an id of {len(value)} bytes" for value, size in ids if len(value) != size or not any(value)]
        if span.parent_span_id and len(span.parent_span_id) != 8:
            self.problems.append("a parent of another length")
        if not 0 < span.start_time_unix_nano <= span.end_time_unix_nano:
            self.problems.append(f"{span.name} ends before it starts")
        if not span.name or not span.kind:
            self.problems.append("a span without name or kind")


def attributes(thing: Any) -> dict[str, Any]:
    """Return the attributes of a span, resource or point."""
    return {attribute.key: value_of(attribute.value) for attribute in thing.attributes}


def value_of(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return (
        [value_of(element) for element in value.array_value.values]
        if kind == "array_value"
        else getattr(value, str(kind))
    )
