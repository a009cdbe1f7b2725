"""Metrics as Prometheus text."""

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from gateway import __version__
from gateway.build_stamp import read_stamp
from gateway.metering.counters import BUCKETS, Labels
from gateway.surfaces.metric_figures import Figures
from gateway.telemetry.gauges import INSTALLATION, PER_WORKER_GAUGES, merge
from gateway.telemetry.request_observers import OWN_BUCKETS

PREFIX = "llmgateway_"
# Labels of the counter of provider calls.
CALL_LABELS = ("provider", "model", "operation")
# Name → (help text, labels).
COUNTERS = {
    "requests_total": ("Responses by operation and status.", ("operation", "status")),
    "errors_total": ("Rejected and failed requests by operation and kind.", ("operation", "kind")),
    "attempts_total": ("Upstream calls by purpose and outcome.", (*CALL_LABELS, "outcome")),
    "tokens_total": ("Tokens by direction.", (*CALL_LABELS, "direction")),
    "cost_nano_usd_total": ("Inference cost in nano-dollars.", CALL_LABELS),
    "calls_hedged_total": ("Second attempts begun while the first one of a request was silent.", CALL_LABELS),
    "hedges_won_total": ("Second attempts that answered before the first one of their request.", CALL_LABELS),
    "calls_left_total": ("Upstream calls abandoned for another provider because no content arrived.", CALL_LABELS),
    "streams_cut_total": ("Streams that failed after their first content.", CALL_LABELS),
    "requests_unlogged_total": ("Rejected requests that the request log omits because they exceed its limits.", ()),
    "guardrail_findings_total": ("Values that guardrails found.", ("kind", "place", "action")),
    "guardrail_unread_total": ("Requests with content that no guardrail could read.", ("content",)),
    "guardrail_checks_total": ("Texts that checkers of guardrails read, remembered or failed.", ("form", "result")),
    "agent_outcomes_total": ("Points of coding agents' telemetry that report an outcome.", ("outcome",)),
    "agent_exports_total": ("OTLP exports of coding agents by outcome.", ("signal", "outcome")),
    "state_changes_total": ("Logged state changes by event.", ("event",)),
}
HISTOGRAMS = {
    "request_seconds": ("Duration of requests by operation; streams are measured to their end.", ("operation",)),
    "overhead_seconds": ("Time that the gateway itself added to successful requests.", ("operation",)),
    "attempt_seconds": ("Duration of upstream calls that returned a response.", CALL_LABELS),
    "first_token_seconds": ("Time to first content of streams.", CALL_LABELS),
}
# Bucket bounds of histograms that differ from the default.
BOUNDS = {"overhead_seconds": OWN_BUCKETS}


def write(figures: Figures) -> tuple[str, bytes]:
    """Return the content type and the text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(MetricsCollector(figures))
    return CONTENT_TYPE_LATEST, generate_latest(registry)


class MetricsCollector(Collector):
    """Exposes the same metrics in Prometheus' data model."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        labels = ("version", "commit", "date")
        build = (__version__, *read_stamp())
        yield _gauge("build_info", "Version, commit and date of the running gateway.", labels, {build: 1.0})
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
            yield _gauge(name, text, PER_WORKER_GAUGES[name].labels if name in PER_WORKER_GAUGES else (), samples)
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
