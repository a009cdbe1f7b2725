"""Health: the product's report, liveness, readiness.

`GET /` checks every store unless `skip` names it; `/livez` touches nothing; `/readyz` says whether a request to this
worker will succeed.
"""

import re
from typing import Any, Literal, TypedDict

from gateway.build_stamp import full_version
from gateway.surfaces.visitors.validation_schemas import Body, TextField
from gateway.surfaces.web.http import About, Inbound, Operation, Outbound, Surface
from gateway.surfaces.web.http_responses import OPENAI, json_reply
from gateway.telemetry.request_observers import LIVENESS, READINESS
from gateway.worker.services import Services

TEXT = ("Content-Type", "text/plain; charset=utf-8")
VARY = ("Vary", "Accept")
ID_HEADER = "x-request-id"
PAGES = "/console"  # browsers are redirected to this path
MAX_RANGES = 20  # number of media ranges of an Accept header that are read
WEIGHT = re.compile(r"(0(\.\d{0,3})?|1(\.0{0,3})?)", re.ASCII)
NO_STORE = ("Cache-Control", "no-store")


class HealthCheck(TypedDict):
    connected: bool
    error: str


class HealthSummary(TypedDict):
    status: Literal["ok", "error"]
    redis: HealthCheck
    database: HealthCheck


class HealthReport(TypedDict):
    message: str
    version: str
    health: HealthSummary


# Also of a skipped check.
FINE: HealthCheck = {"connected": True, "error": ""}
NOT_CONFIGURED: HealthCheck = {"connected": False, "error": "not configured"}
REDIS_AWAY: HealthCheck = {"connected": False, "error": "Redis connection failed"}
DATABASE_AWAY: HealthCheck = {"connected": False, "error": "Database connection failed"}


def report(services: Services, inbound: Inbound) -> Outbound:
    """The health report of the product: 200 when every check that was not skipped passed, otherwise 503. A browser is
    redirected to the pages; programs and checkers that accept JSON as readily as HTML are not."""
    if not inbound.query and prefers_html(inbound.header("accept")):
        return Outbound(303, [("Location", inbound.base_url + PAGES), NO_STORE, VARY, (ID_HEADER, inbound.shown_id)])
    skipped = {item.strip().lower() for item in inbound.arguments().get("skip", "").split(",")}
    redis = database = FINE
    if "redis" not in skipped:
        redis = unchecked_redis(services.settings.redis.url)
        if redis is FINE and not services.redis_connected():
            redis = REDIS_AWAY
    if "database" not in skipped and not services.database_connected():
        database = DATABASE_AWAY
    return write_report(services.settings.server.version or full_version(), redis, database, inbound.shown_id)


def unchecked_redis(url: str) -> HealthCheck:
    """Return what the configured URL alone says about Redis."""
    if url:
        return FINE
    return NOT_CONFIGURED


def write_report(version: str, redis: HealthCheck, database: HealthCheck, shown_id: str = "") -> Outbound:
    """Return the report of the two checks. A Redis that is not configured does not count as missing."""
    checks = {"Redis": redis, "Database": database}
    failed = {name: check["connected"] for name, check in checks.items() if check not in (FINE, NOT_CONFIGURED)}
    body: HealthReport = {
        "message": _message(failed),
        "version": version,
        "health": {"status": "error" if failed else "ok", "redis": redis, "database": database},
    }
    return json_reply(body, shown_id, 503 if failed else 200, [VARY])


def prefers_html(accept: str) -> bool:
    """Whether an Accept header prefers HTML to JSON (RFC 9110, 12.5.1), as those of browsers do."""
    weights = dict(_read_weight(media_range) for media_range in accept.lower().split(",")[:MAX_RANGES])
    anything = weights.get("*/*", 0.0)
    html = weights.get("text/html", weights.get("text/*", anything))
    return html > weights.get("application/json", weights.get("application/*", anything))


def _read_weight(media_range: str) -> tuple[str, float]:
    """Return a media range without its parameters, and its weight; 0 for an invalid weight."""
    name, *parameters = [part.strip() for part in media_range.split(";")]
    weight = next((parameter[2:] for parameter in parameters if parameter.startswith("q=")), "1")
    return name, float(weight) if WEIGHT.fullmatch(weight) else 0.0


def _message(failed: dict[str, bool]) -> str:
    """Return the report's sentence; `failed` has whether each store with a problem can be reached."""
    if not failed:
        return "OK"
    if any(failed.values()):
        return f"Service Unavailable - {' and '.join(failed)} {'are' if len(failed) > 1 else 'is'} not ready"
    return f"Service Unavailable - {' and '.join(failed)} {'are' if len(failed) > 1 else 'is'} unavailable"


def alive(services: Services, inbound: Inbound) -> Outbound:
    """Return 200 while the process runs; no store is accessed."""
    return write_alive(inbound.shown_id)


def write_alive(shown_id: str) -> Outbound:
    return _write_text(200, ["ok"], shown_id)


def _write_text(status: int, lines: list[str], shown_id: str, *more: tuple[str, str]) -> Outbound:
    return Outbound(status, [TEXT, NO_STORE, (ID_HEADER, shown_id), *more], ("\n".join(lines) + "\n").encode())


def ready(services: Services, inbound: Inbound) -> Outbound:
    """Return 200 if a request to this worker would succeed, with further lines for anything degraded. Otherwise 503
    with the reasons: the worker is draining, the store is unreachable, refuses writes or has another schema than this
    code, or the disk is full."""
    reasons = services.unready()
    if reasons:
        return write_unready(reasons, inbound.shown_id)
    return _write_text(200, ["ready", *services.notices()], inbound.shown_id)


def write_unready(reasons: list[str], shown_id: str) -> Outbound:
    return _write_text(503, reasons, shown_id, ("Retry-After", "1"))


def robots(services: Services, inbound: Inbound) -> Outbound:
    """Tell search engines to index nothing."""
    return Outbound(200, [TEXT], b"User-agent: *\nDisallow: /\n")


class HealthQuery(Body):
    """The query parameters of the health report, for the API description."""

    skip = TextField(about="Checks to skip, separated by commas: redis, database.")


REPORT = About(
    "Health report",
    "Service",
    answer=HealthReport,
    alike=(503,),
    query=HealthQuery,
    access="none",
)
COMMON_ABOUT: dict[str, Any] = {
    "tag": "Service",
    "answer": str,
    "alike": (503,),
    "access": "none",
    "media": "text/plain",
}
OPERATIONS = (
    Operation("GET", "/", report, hot=True, about=REPORT),
    *(Operation("GET", path, alive, hot=True, about=About("Check liveness", **COMMON_ABOUT)) for path in LIVENESS),
    *(Operation("GET", path, ready, hot=True, about=About("Check readiness", **COMMON_ABOUT)) for path in READINESS),
    Operation("GET", "/robots.txt", robots, about=About("Get robots.txt", **COMMON_ABOUT)),
)

SURFACE = Surface("health", OPENAI, OPERATIONS)
