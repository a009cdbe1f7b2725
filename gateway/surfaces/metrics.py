"""`/metrics`: the node's metrics as Prometheus text, for the operator's token, or on a separate port."""

import hmac
from collections.abc import Iterator
from itertools import accumulate

from msgspec import Struct
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from gateway import __version__
from gateway.errors import NotFound, Unauthenticated
from gateway.metering.counters import BUCKETS, GaugeRow, Histograms, Labels, Totals
from gateway.runtime.threads import compute
from gateway.surfaces.auth import token_of
from gateway.surfaces.http import About, Inbound, Operation, Outbound, Surface
from gateway.surfaces.http_responses import OPENAI
from gateway.telemetry.gauges import INSTALLATION, SHARED, merge
from gateway.telemetry.request_observers import OWN_BUCKETS
from gateway.worker.services import Services

PREFIX = "llmgateway_"
# Labels of the counter of provider calls.
PLACE = ("provider", "model", "operation")
# Name → (help text, labels).
COUNTERS = {
    "requests_total": ("Responses by operation and status.", ("operation", "status")),
    "errors_total": ("Rejected and failed requests by operation and kind.", ("operation", "kind")),
    "attempts_total": ("Upstream calls by purpose and outcome.", (*PLACE, "outcome")),
    "tokens_total": ("Tokens by direction.", (*PLACE, "direction")),
    "cost_nano_usd_total": ("Inference cost in nano-dollars.", PLACE),
    "calls_left_total": ("Upstream calls abandoned for another provider because no content arrived.", PLACE),
    "streams_cut_total": ("Streams that failed after their first content.", PLACE),
    "requests_unlogged_total": ("Rejected requests that the request log omits because they exceed its limits.", ()),
    "agent_exports_total": ("OTLP exports of coding agents by outcome.", ("signal", "outcome")),
    "state_changes_total": ("Logged state changes by event.", ("event",)),
}
HISTOGRAMS = {
    "request_seconds": ("Duration of requests by operation; streams are measured to their end.", ("operation",)),
    "overhead_seconds": ("Time that the gateway itself added to successful requests.", ("operation",)),
    "attempt_seconds": ("Duration of upstream calls that returned a response.", PLACE),
    "first_token_seconds": ("Time to first content of streams.", PLACE),
}
# Bucket bounds of histograms that differ from the default.
BOUNDS = {"overhead_seconds": OWN_BUCKETS}


def metrics(services: Services, inbound: Inbound) -> Outbound:
    """Metrics of all workers of this node as Prometheus text. Requires the token of GATEWAY_METRICS_TOKEN, since they
    reveal what is spent and where."""
    expected = services.settings.secret("GATEWAY_METRICS_TOKEN")
    if not expected:
        raise NotFound("Metrics are disabled; the operator sets GATEWAY_METRICS_TOKEN.", code="metrics_off")
    if not hmac.compare_digest(token_of(inbound).encode(), expected.encode()):
        raise Unauthenticated("Send the operator's token as 'Authorization: Bearer <token>'.", code="metrics_token")
    kind, text = expose(services)
    return Outbound(200, [("Content-Type", kind), ("Cache-Control", "no-store")], text)


def expose(services: Services) -> tuple[str, bytes]:
    """Return the content type and the text."""
    return CONTENT_TYPE_LATEST, compute(_write, Figures.of(services))


def _write(figures: "Figures") -> bytes:
    """Write the text in a thread: thousands of series take longer than other requests may wait."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(MetricsCollector(figures))
    return generate_latest(registry)


class Figures(Struct, frozen=True):
    """The metrics of a node at one moment."""

    totals: Totals
    histograms: Histograms
    gauges: dict[str, dict[Labels, list[float]]]
    texts: dict[str, str]
    installation: list[GaugeRow]
    books: dict[str, tuple[str, float]]

    @classmethod
    def of(cls, services: Services) -> "Figures":
        counters = services.background.counters
        return cls(
            counters.totals(),
            counters.histograms(),
            counters.node_gauges(),
            services.gauge_texts(),
            services.installation_rows(),
            services.billing.reconciliation_gauge.gauges(),
        )


class MetricsCollector(Collector):
    """Exposes the same metrics in Prometheus' data model."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        yield _gauge("build_info", "Version of the running gateway.", ("version",), {(__version__,): 1.0})
        yield from self._counted()
        yield from self._gauges()

    def _counted(self) -> Iterator[Metric]:
        totals = self._figures.totals
        histograms = self._figures.histograms
        for name, (text, labels) in COUNTERS.items():
            counter = CounterMetricFamily(PREFIX + name, text, labels=labels)
            for values, amount in totals.get(name, {}).items():
                counter.add_metric(values, amount)
            yield counter
        for name, (text, labels) in HISTOGRAMS.items():
            histogram = HistogramMetricFamily(PREFIX + name, text, labels=labels)
            for values, row in histograms.get(name, {}).items():
                histogram.add_metric(values, _buckets(row, BOUNDS.get(name, BUCKETS)), sum_value=row[-1])
            yield histogram

    def _gauges(self) -> Iterator[Metric]:
        figures = self._figures
        for name, text in figures.texts.items():
            samples = {labels: merge(name, values) for labels, values in figures.gauges.get(name, {}).items()}
            yield _gauge(name, text, SHARED[name].labels if name in SHARED else (), samples)
        for name, gauge in INSTALLATION.items():
            rows = {labels: value for one, labels, value in figures.installation if one == name}
            yield _gauge(name, gauge.text, gauge.labels, rows)
        for name, (text, value) in figures.books.items():
            yield _gauge(name, text, (), {(): value})


def _gauge(name: str, text: str, labels: tuple[str, ...], samples: dict[Labels, float]) -> GaugeMetricFamily:
    made = GaugeMetricFamily(PREFIX + name, text, labels=labels)
    for values, value in samples.items():
        made.add_metric(values, value)
    return made


def _buckets(row: list[float], buckets: tuple[float, ...]) -> list[tuple[str, float]]:
    bounds = [str(bound) for bound in buckets] + ["+Inf"]
    return list(zip(bounds, accumulate(row[:-1]), strict=True))


SAMPLE = {"type": "string", "examples": [f'{PREFIX}requests_total{{operation="chat",status="200"}} 128.0\n']}
METRICS = About(
    "Show metrics (Prometheus text)", "Service", answer=SAMPLE, errors=(401, 404), access="operator", media="text/plain"
)
SURFACE = Surface("metrics", OPENAI, (Operation("GET", "/metrics", metrics, about=METRICS),))
