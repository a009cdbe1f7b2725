"""Health: the product's report, liveness, readiness, metrics.

`GET /` checks every store unless `skip` names it; `/livez` touches nothing; `/readyz` says whether a request to this
worker will succeed; `/metrics` is Prometheus text of this worker.
"""

import hmac
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from gateway import __version__
from gateway.errors import NotFound, Unauthenticated
from gateway.metering.counters import BUCKETS
from gateway.services import Services
from gateway.surfaces.auth import token_of
from gateway.surfaces.http import About, Inbound, Operation, Outbound, Surface
from gateway.surfaces.replies import OPENAI, json_reply
from gateway.telemetry.ends import OWN_BUCKETS

TEXT = ("Content-Type", "text/plain; charset=utf-8")
NO_STORE = ("Cache-Control", "no-store")

# Name → (what it tells, its labels).
COUNTERS = {
    "requests_total": ("Answers by operation and status.", ("operation", "status")),
    "attempts_total": ("Upstream calls by provider and outcome.", ("provider", "outcome")),
    "tokens_total": ("Tokens by provider and direction.", ("provider", "direction")),
    "cost_nano_usd_total": ("Inference cost in nano-dollars by provider.", ("provider",)),
    "errors_total": ("Requests that were refused or failed, by operation and kind.", ("operation", "kind")),
    "state_changes_total": ("Changes of state that were logged, by event.", ("event",)),
    "requests_unlogged_total": ("Refused requests that the request log says nothing of, being beyond its bounds.", ()),
    "streams_cut_total": ("Streams that broke after their first content, by provider.", ("provider",)),
}
HISTOGRAMS = {
    "request_seconds": ("Duration of requests, of streams to their end, by operation.", ("operation",)),
    "overhead_seconds": ("What the gateway itself took of requests that were answered.", ("operation",)),
    "attempt_seconds": ("Duration of upstream calls that answered.", ("provider",)),
    "first_token_seconds": ("Time to the first content of streams.", ("provider",)),
}

# Bucket bounds of histograms that have others than most.
BOUNDS = {"overhead_seconds": OWN_BUCKETS}

Check = dict[str, bool | str]

LIVENESS = ("/livez", "/healthz", "/health/liveliness")
READINESS = ("/readyz", "/health/readiness")
FINE: Check = {"connected": True, "error": ""}
NOT_CONFIGURED: Check = {"connected": False, "error": "not configured"}
REDIS_AWAY: Check = {"connected": False, "error": "Redis connection failed"}
DATABASE_AWAY: Check = {"connected": False, "error": "Database connection failed"}


def report(services: Services, inbound: Inbound) -> Outbound:
    """The health report of the product: 200 when every check that was not skipped passed, else 503."""
    skipped = {item.strip().lower() for item in inbound.arguments().get("skip", "").split(",")}
    redis, database = FINE, FINE
    if "redis" not in skipped:
        redis = NOT_CONFIGURED if services.store.redis is None else FINE if services.redis_connected() else REDIS_AWAY
    if "database" not in skipped:
        database = FINE if services.database_connected() else DATABASE_AWAY
    return write_report(services.settings.server.version or __version__, redis, database, inbound.shown_id)


def unasked(url: str) -> Check:
    """What is said of a Redis that nobody asked yet."""
    return FINE if url else NOT_CONFIGURED


def write_report(version: str, redis: Check, database: Check, shown_id: str = "") -> Outbound:
    """The report of two checks. What is not configured is not missing."""
    checks = {"Redis": redis, "Database": database}
    down = [name for name, check in checks.items() if check in (REDIS_AWAY, DATABASE_AWAY)]
    body = {
        "message": _message(down),
        "version": version,
        "health": {"status": "error" if down else "ok", "redis": redis, "database": database},
    }
    return json_reply(body, shown_id, 503 if down else 200)


def _message(down: list[str]) -> str:
    if not down:
        return "OK"
    return f"Service Unavailable - {' and '.join(down)} {'are' if len(down) > 1 else 'is'} unavailable"


def alive(services: Services, inbound: Inbound) -> Outbound:
    """The process answers; no store is asked."""
    return write_alive()


def write_alive() -> Outbound:
    return Outbound(200, [TEXT, NO_STORE], b"ok\n")


def ready(services: Services, inbound: Inbound) -> Outbound:
    """503 with the reasons while a request would not succeed: draining, with a store that is away, refuses writes or
    does not fit this code, with a full disk. 200 otherwise, with what is less than it should be in further lines."""
    reasons = services.unready()
    if reasons:
        return write_unready(reasons)
    return Outbound(200, [TEXT, NO_STORE], "\n".join(["ready", *services.notices(), ""]).encode())


def write_unready(reasons: list[str]) -> Outbound:
    return Outbound(503, [TEXT, NO_STORE, ("Retry-After", "1")], ("\n".join(reasons) + "\n").encode())


def metrics(services: Services, inbound: Inbound) -> Outbound:
    """Prometheus text: counters of all workers of this node, gauges of the worker that is asked. For who shows the
    token of GATEWAY_METRICS_TOKEN alone: it tells what is spent and where."""
    wanted = services.settings.secret("GATEWAY_METRICS_TOKEN")
    if not wanted:
        raise NotFound("Metrics are off: the operator sets GATEWAY_METRICS_TOKEN.", code="metrics_off")
    if not hmac.compare_digest(token_of(inbound).encode(), wanted.encode()):
        raise Unauthenticated("Send the operator's token as 'Authorization: Bearer <token>'.", code="metrics_token")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(MetricsCollector(services))
    return Outbound(200, [("Content-Type", CONTENT_TYPE_LATEST), NO_STORE], generate_latest(registry))


class MetricsCollector(Collector):
    """What `Services` counted, in Prometheus' shapes."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def collect(self) -> Iterator[Metric]:
        counters = self._services.background.counters
        totals, histograms = counters.totals(), counters.histograms()
        for name, (text, labels) in COUNTERS.items():
            counter = CounterMetricFamily(f"llmgateway_{name}", text, labels=labels)
            for values, amount in totals.get(name, {}).items():
                counter.add_metric(values, amount)
            yield counter
        for name, (text, labels) in HISTOGRAMS.items():
            histogram = HistogramMetricFamily(f"llmgateway_{name}", text, labels=labels)
            for values, row in histograms.get(name, {}).items():
                histogram.add_metric(values, _buckets(row, BOUNDS.get(name, BUCKETS)), sum_value=row[-1])
            yield histogram
        for name, (text, value) in self._services.gauges().items():
            yield GaugeMetricFamily(f"llmgateway_{name}", text, value=value)


def _buckets(row: list[float], buckets: tuple[float, ...]) -> list[tuple[str, float]]:
    bounds = [str(bound) for bound in buckets] + ["+Inf"]
    return list(zip(bounds, accumulate(row[:-1]), strict=True))


def robots(services: Services, inbound: Inbound) -> Outbound:
    return Outbound(200, [TEXT], b"User-agent: *\nDisallow: /\n")


METRICS = About("Prometheus text", "Service", errors=(401, 404), access="operator", media="text/plain")
OPERATIONS = (
    Operation("GET", "/", report),
    *(Operation("GET", path, alive) for path in LIVENESS),
    *(Operation("GET", path, ready) for path in READINESS),
    Operation("GET", "/metrics", metrics, about=METRICS),
    Operation("GET", "/robots.txt", robots),
)

SURFACE = Surface("health", OPENAI, OPERATIONS)
