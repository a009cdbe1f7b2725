"""OpenTelemetry: exports traces and metrics of requests by OTLP over HTTP, if the operator configured a collector.

A request is a server span, each upstream call a client span below it with the attributes of the GenAI conventions.
Prompts and answers are never exported. Spans are created when a request is finished, from ids chosen when it began; so
the request itself costs nothing but the header that passes the trace on to the provider.
"""

import hashlib
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from gateway import __version__
from gateway.billing.context import Attempt, error_type
from gateway.clock import Clock
from gateway.configuration.file import SettingsError
from gateway.configuration.settings import CONFIG, Otel
from gateway.neutral.usage import Usage
from gateway.providers.protocol import Call, Target
from gateway.providers.upstream_calls import CallListener
from gateway.runtime.large_files import MessageBody
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.process import without_fork_hooks
from gateway.runtime.state_changes import StateLog
from gateway.runtime.threads import Job
from gateway.telemetry.collector import WatchedExporter, silence_export_errors
from gateway.telemetry.request_observers import UNMATCHED, FinishedRequest, parse_traceparent
from gateway.transport.outgoing_routes import OutgoingRoutes
from gateway.transport.request_bytes import read_url

sdk_trace = LazyImport("opentelemetry.sdk.trace")
trace_export = LazyImport("opentelemetry.sdk.trace.export")
sdk_metrics = LazyImport("opentelemetry.sdk.metrics")
metrics_export = LazyImport("opentelemetry.sdk.metrics.export")
otlp_session = LazyImport("gateway.telemetry.otlp_session")
otlp_trace = LazyImport("opentelemetry.exporter.otlp.proto.http.trace_exporter")
otlp_metrics = LazyImport("opentelemetry.exporter.otlp.proto.http.metric_exporter")
sdk_resources = LazyImport("opentelemetry.sdk.resources")
sdk_scope = LazyImport("opentelemetry.sdk.util.instrumentation")
api = LazyImport("opentelemetry.trace")

MAX_STATE_LENGTH = 512
SCOPE = "llmgateway"
# Few spans in a batch: serializing one blocks the event loop.
BATCH = 64
EXPORT_INTERVAL_MS = 1_000
QUEUE = 4_096
# How long the end of a worker waits for the collector. The SDK's own time limits are not kept by an exporter that waits
# for an answer.
STOP_TIMEOUT_S = 1.0
NS = 1_000_000_000
# Bounds of histograms by the semantic conventions for generative AI: 0.01 to 81.92 seconds, 1 to 67,108,864 tokens.
SECONDS = tuple(0.01 * 2**power for power in range(14))
TOKENS = tuple(4**power for power in range(14))
PROBABILITY_BITS = 56


class TraceContext:
    """The trace of one request, a new one without a caller's. `state` is the caller's `tracestate`, passed on."""

    __slots__ = ("parent", "request_id", "sampled", "state", "trace_id")

    def __init__(self, request_id: str, headers: Mapping[str, str], ratio: float) -> None:
        match = parse_traceparent(headers.get("traceparent", ""))
        self.request_id = request_id
        self.parent = ""
        self.state = ""
        if match:
            self.trace_id = match[1]
            self.parent = match[2]
            self.sampled = bool(int(match[3], 16) & 1)
            self.state = headers.get("tracestate", "").strip()[:MAX_STATE_LENGTH]
            return
        self.trace_id = request_id
        self.sampled = int(request_id[-14:], 16) < ratio * (1 << PROBABILITY_BITS)

    def span(self, number: int = -1) -> str:
        """Return the span id of an attempt; -1: of the request."""
        return hashlib.blake2b(f"{self.request_id}:{number}".encode(), digest_size=8).hexdigest()

    def listener(self, number: int, inner: CallListener | None) -> "TracedCall":
        """Return a listener that adds the trace headers to an attempt's call."""
        line = f"00-{self.trace_id}-{self.span(number)}-{'01' if self.sampled else '00'}"
        return TracedCall(line, self.state, inner)


class TracedCall:
    """Adds trace headers to one upstream call (a CallListener of providers.upstream_calls), and calls an inner listener
    if there is one."""

    def __init__(self, traceparent: str, state: str, inner: CallListener | None) -> None:
        self._traceparent = traceparent
        self._state = state
        self._inner = inner

    def sending(self, call: Call) -> None:
        """Add the trace headers to the call."""
        call.endpoint = None
        call.headers = {**call.headers, "traceparent": self._traceparent}
        if self._state:
            call.headers["tracestate"] = self._state
        if self._inner is not None:
            self._inner.sending(call)

    def sent(self, method: str, url: str, body: bytes | MessageBody) -> None:
        if self._inner is not None:
            self._inner.sent(method, url, body)

    def answered(self, status: int) -> None:
        if self._inner is not None:
            self._inner.answered(status)

    def received(self, data: bytes) -> None:
        if self._inner is not None:
            self._inner.received(data)


class Tracing:
    """The exporter of a worker. SettingsError where the optional packages are not installed."""

    def __init__(
        self, settings: Otel, clock: Clock, states: StateLog | None = None, routes: OutgoingRoutes | None = None
    ) -> None:
        """`states` is notified when the collector goes away; `routes` has the proxies."""
        self._clock = clock
        self._ratio = settings.sample
        try:
            with without_fork_hooks("opentelemetry"):
                self._open(settings, states or StateLog(), routes or OutgoingRoutes())
        except ImportError as error:
            raise SettingsError(
                f"otel.endpoint is set, but {error.name} is missing; install llmgateway[otel]"
            ) from None
        self._scope = sdk_scope.InstrumentationScope(SCOPE, __version__)
        names = tomllib.loads((CONFIG / "genai_names.toml").read_text())
        self._providers = names["providers"]
        self._operations = names["operations"]
        self._make_instruments()

    def begin(self, request_id: str, headers: Mapping[str, str]) -> TraceContext:
        """Begin the trace of a request."""
        return TraceContext(request_id, headers, self._ratio)

    def __call__(self, finished: FinishedRequest) -> None:
        """Record a finished request."""
        context = finished.context
        trace = context.trace if context is not None else None
        if not isinstance(trace, TraceContext):
            trace = TraceContext(finished.request_id, {}, self._ratio)
        end_ns = finished.at_us * 1000
        method, _, route = finished.operation.partition(" ")
        http = {"http.request.method": method, "http.route": route, "http.response.status_code": finished.status}
        if finished.operation == UNMATCHED:
            http = {"http.response.status_code": finished.status}
        failed = {} if finished.error is None else {"error.type": finished.error.code}
        self._http_seconds.record(finished.took_s, {**http, **failed})
        for attempt in finished.attempts if not self._is_cached(finished) else ():
            self._record_attempt(finished, trace, attempt, end_ns)
        if trace.sampled:
            more = {"client.address": finished.peer, "llmgateway.request_id": finished.request_id}
            if finished.caller is not None:
                more |= {"llmgateway.key": finished.caller.key_id, "llmgateway.project": finished.caller.project_id}
            start_ns = end_ns - round(finished.took_s * NS)
            span = (finished.operation, trace.span(), trace.parent, api.SpanKind.SERVER)
            fault = finished.error if finished.status >= 500 else None
            self._emit(trace, span, {**http, **more, **failed}, start_ns, end_ns, fault.code if fault else "")

    def close(self) -> None:
        """Export the queued spans and metrics and stop; a collector that is silent for STOP_TIMEOUT_S gets no more."""
        exports = [Job(self._processor.shutdown), Job(self._metrics.shutdown)]
        stop_at = self._clock.monotonic() + STOP_TIMEOUT_S
        for export in exports:
            with suppress(TimeoutError):
                export.result(max(0.0, stop_at - self._clock.monotonic()))
            export.stop()

    def _open(self, settings: Otel, states: StateLog, routes: OutgoingRoutes) -> None:
        self._resource = sdk_resources.Resource.create(
            {"service.name": settings.service_name, "service.version": __version__}
        )
        traces, metrics = _otlp(settings.endpoint.rstrip("/"), states, routes)
        self._processor = trace_export.BatchSpanProcessor(
            traces, max_queue_size=QUEUE, schedule_delay_millis=EXPORT_INTERVAL_MS, max_export_batch_size=BATCH
        )
        reader = metrics_export.PeriodicExportingMetricReader(metrics, settings.metrics_every_s * 1000)
        self._metrics = sdk_metrics.MeterProvider([reader], self._resource, shutdown_on_exit=False)

    def _is_cached(self, finished: FinishedRequest) -> bool:
        outcome = finished.context.outcome if finished.context is not None else None
        return outcome is not None and outcome.cached

    def _record_attempt(self, finished: FinishedRequest, trace: TraceContext, attempt: Attempt, end_ns: int) -> None:
        operation = finished.context.operation if finished.context is not None else ""
        facts = self._genai(attempt.target, operation)
        if attempt.model:
            facts["gen_ai.response.model"] = attempt.model
        failed = {"error.type": error_type(attempt.error)} if attempt.error is not None else {}
        took_s = max(0.0, (attempt.ended or self._clock.monotonic()) - attempt.started)
        self._seconds.record(took_s, {**facts, **failed})
        usage = attempt.usage
        if usage is not None:
            self._tokens.record(usage.input_total, {**facts, "gen_ai.token.type": "input"})
            self._tokens.record(usage.output_total, {**facts, "gen_ai.token.type": "output"})
        if attempt.first_at:
            self._first.record(attempt.first_at - attempt.started, facts)
        if trace.sampled:
            more = _details(attempt, usage)
            name = f"{facts['gen_ai.operation.name']} {facts['gen_ai.request.model']}"
            start_ns = attempt.at_us * 1000
            span = (name, trace.span(attempt.call_number), trace.span(), api.SpanKind.CLIENT)
            fault = attempt.error.code if attempt.error is not None else ""
            self._emit(trace, span, {**facts, **more, **failed}, start_ns, start_ns + round(took_s * NS), fault)

    def _genai(self, target: Target, operation: str) -> dict[str, Any]:
        place = urlsplit(target.address)
        provider = target.provider.id.partition(":")[0]
        facts: dict[str, Any] = {
            "gen_ai.operation.name": self._operations.get(operation, operation or "chat"),
            "gen_ai.provider.name": self._providers.get(provider, provider),
            "gen_ai.request.model": target.mapping.external_id,
        }
        if place.hostname and target.trusted:  # the address of an organization's own provider is private
            facts |= {"server.address": place.hostname} | ({"server.port": place.port} if place.port else {})
        return facts

    def _emit(
        self,
        trace: TraceContext,
        span: tuple[str, str, str, Any],
        facts: dict[str, Any],
        start_ns: int,
        end_ns: int,
        fault: str,
    ) -> None:
        name, ident, parent, kind = span
        flags = api.TraceFlags(api.TraceFlags.SAMPLED)

        def place(of: str, remote: bool) -> Any:
            return api.SpanContext(int(trace.trace_id, 16), int(of, 16), remote, flags)

        status = api.Status(api.StatusCode.ERROR, fault) if fault else api.Status(api.StatusCode.UNSET)
        self._processor.on_end(
            sdk_trace.ReadableSpan(
                name,
                context=place(ident, False),
                parent=place(parent, kind is api.SpanKind.SERVER) if parent else None,
                resource=self._resource,
                attributes=facts,
                kind=kind,
                status=status,
                start_time=start_ns,
                end_time=end_ns,
                instrumentation_scope=self._scope,
            )
        )

    def _make_instruments(self) -> None:
        make = self._metrics.get_meter(SCOPE, __version__).create_histogram
        more: dict[str, Any] = {"explicit_bucket_boundaries_advisory": SECONDS}
        self._http_seconds = make("http.server.request.duration", "s", "Duration of requests.", **more)
        self._seconds = make("gen_ai.client.operation.duration", "s", "Duration of upstream calls.", **more)
        self._first = make("gen_ai.client.operation.time_to_first_chunk", "s", "Time to the first content.", **more)
        more = {"explicit_bucket_boundaries_advisory": TOKENS}
        self._tokens = make("gen_ai.client.token.usage", "{token}", "Tokens used, by direction.", **more)


def _details(attempt: Attempt, usage: Usage | None) -> dict[str, Any]:
    """Return the attributes of an attempt's span that metrics do not have."""
    facts: dict[str, Any] = {"llmgateway.cost_nano_usd": attempt.charge.total}
    if usage is not None:
        facts |= {"gen_ai.usage.input_tokens": usage.input_total, "gen_ai.usage.output_tokens": usage.output_total}
    if attempt.upstream_id:
        facts["gen_ai.response.id"] = attempt.upstream_id
    if attempt.finish and attempt.error is None:
        facts["gen_ai.response.finish_reasons"] = (attempt.finish,)
    if attempt.status:
        facts["http.response.status_code"] = attempt.status
    return facts


def _otlp(endpoint: str, states: StateLog, routes: OutgoingRoutes) -> tuple[Any, Any]:
    """Return exporters for traces and metrics; OpenTelemetry's own variables set their headers and time limits."""
    origin = read_url(endpoint, trusted=True).origin

    def open_session() -> Any:
        return otlp_session.open_session(origin, routes.find(origin))

    traces = otlp_trace.OTLPSpanExporter(f"{endpoint}/v1/traces", session=open_session())
    metrics = otlp_metrics.OTLPMetricExporter(f"{endpoint}/v1/metrics", session=open_session())
    silence_export_errors()
    return WatchedExporter(traces, states), WatchedExporter(metrics, states)
