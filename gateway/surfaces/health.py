"""Health: the product's report, liveness, readiness, metrics.

`GET /` checks every store unless `skip` names it; `/healthz` touches nothing; `/readyz` says whether this worker
wants traffic; `/metrics` is Prometheus text of this worker.
"""

from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from gateway import __version__
from gateway.services import Services
from gateway.surfaces.exchange import Inbound, Operation, Outbound
from gateway.surfaces.replies import json_reply

TEXT = ("Content-Type", "text/plain; charset=utf-8")
NO_STORE = ("Cache-Control", "no-store")

Check = dict[str, bool | str]


def report(services: Services, inbound: Inbound) -> Outbound:
    """The health report of the product: 200 when every check that was not skipped passed, else 503."""
    skipped = {item.strip().lower() for item in inbound.arguments().get("skip", "").split(",")}
    checks = {
        "Redis": _check(services.redis_connected, "redis" in skipped, "Redis connection failed"),
        "Database": _check(services.database_connected, "database" in skipped, "Database connection failed"),
    }
    down = [name for name, check in checks.items() if not check["connected"]]
    body = {
        "message": _message(down),
        "version": services.settings.server.version or __version__,
        "health": {
            "status": "error" if down else "ok",
            "redis": checks["Redis"],
            "database": checks["Database"],
        },
    }
    return json_reply(body, inbound.shown_id, 503 if down else 200)


def _check(connected: Callable[[], bool], skipped: bool, fault: str) -> Check:
    fine = skipped or connected()
    return {"connected": fine, "error": "" if fine else fault}


def _message(down: list[str]) -> str:
    if not down:
        return "OK"
    return f"Service Unavailable - {' and '.join(down)} {'are' if len(down) > 1 else 'is'} unavailable"


def alive(services: Services, inbound: Inbound) -> Outbound:
    """The process answers; no store is asked."""
    return Outbound(200, [TEXT, NO_STORE], b"ok\n")


def ready(services: Services, inbound: Inbound) -> Outbound:
    """503 with the reasons while draining, with the database away or with migrations that do not match."""
    reasons = services.unready()
    if reasons:
        return Outbound(503, [TEXT, NO_STORE, ("Retry-After", "1")], ("\n".join(reasons) + "\n").encode())
    return Outbound(200, [TEXT, NO_STORE], b"ready\n")


def metrics(services: Services, inbound: Inbound) -> Outbound:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(services.gauges)
    return Outbound(200, [("Content-Type", CONTENT_TYPE_LATEST), NO_STORE], generate_latest(registry))


def robots(services: Services, inbound: Inbound) -> Outbound:
    return Outbound(200, [TEXT], b"User-agent: *\nDisallow: /\n")


OPERATIONS = (
    Operation("GET", "/", report),
    Operation("GET", "/healthz", alive),
    Operation("GET", "/health/liveliness", alive),
    Operation("GET", "/readyz", ready),
    Operation("GET", "/health/readiness", ready),
    Operation("GET", "/metrics", metrics),
    Operation("GET", "/robots.txt", robots),
)
