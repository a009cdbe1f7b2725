"""The request line: one line a request at its end, as JSON or readable, for operators who switched it on.

It names who asked, for what, who served it and what became of it; never what was said, and no secret.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import orjson

from gateway.billing.context import RequestContext
from gateway.billing.outcome import Attempt, error_type
from gateway.clock import SECOND_US, to_iso
from gateway.errors import GatewayError
from gateway.money import format_usd
from gateway.telemetry.finished import FinishedRequest
from gateway.telemetry.remedies import remedy_of
from gateway.threads import later

# Lines are written together, so that a request waits for no write of its own.
GATHER_S = 0.05
MOST_LINES = 500
PLAIN = re.compile(r"[\w./:@+-]+", re.ASCII)
# Of machines that ask all the time: they have no line while they are answered well.
PROBES = frozenset(
    {"GET /metrics", "GET /healthz", "GET /livez", "GET /readyz", "GET /health/liveliness", "GET /health/readiness"}
)
# What stands at the beginning of a readable line, and what the gateway itself wrote: ids, figures and codes of its own.
HEAD = frozenset(("at", "level", "event", "operation", "status"))
OURS = frozenset(
    (
        *("request_id", "key", "project", "organization", "attempts", "input_tokens", "output_tokens", "cost_usd"),
        *("duration_ms", "provider_ms", "gateway_ms", "first_token_ms"),
    )
)
SHORT = 200  # texts from here on are quoted without a look, and not remembered
FAULT = 500  # statuses from here on are no caller's fault
Facts = dict[str, Any]


class RequestLines:
    """Writes a line for each request but probes that were answered well. `write` takes whole lines."""

    def __init__(self, form: Literal["text", "json"], write: Callable[[str], object]) -> None:
        self._put = write_json if form == "json" else write_text
        self._write = write
        self._waiting: list[str] = []

    def __call__(self, finished: FinishedRequest) -> None:
        if finished.operation in PROBES and finished.status < FAULT:
            return
        waiting = self._waiting
        waiting.append(self._put(facts_of(finished)))
        if len(waiting) >= MOST_LINES:
            self.flush()
        elif len(waiting) == 1:
            later(GATHER_S, self.flush)

    def flush(self) -> None:
        """Write what waits."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._write("".join(waiting))


def facts_of(finished: FinishedRequest) -> Facts:
    """What the line says, by name; what a request has nothing of is left out. Times are milliseconds, costs dollars."""
    facts: Facts = {
        "at": _moment(finished.at_us),
        "level": "info" if finished.status < FAULT else "warning",
        "event": "request",
        "request_id": finished.request_id,
        "operation": finished.operation,
        "status": finished.status,
        "duration_ms": round(finished.took_s * 1000, 1),
        "ip": finished.peer,
    }
    if finished.shown_id != finished.request_id:
        facts["label"] = finished.shown_id
    caller, context = finished.caller, finished.context
    if caller is not None:
        facts |= {"key": caller.key_id, "project": caller.project_id, "organization": caller.organization_id}
    elif finished.error is not None and finished.error.whose is not None:
        facts["key"], facts["project"], facts["organization"], _ = finished.error.whose
    if context is not None and context.request is not None:
        facts["model"] = context.request.requested_model
        if context.source:
            facts["source"] = context.source
    if finished.replayed:
        facts["replayed"] = True
    attempts = finished.attempts
    if context is not None and attempts:
        _add_served(facts, context, attempts)
    if finished.error is not None:
        _add_failure(facts, finished.error, attempts)
    return facts


def _moment(at_us: int) -> str:
    """ISO 8601 in UTC with milliseconds; many lines share a second."""
    seconds, micro = divmod(at_us, SECOND_US)
    return f"{_second(seconds)}.{micro // 1000:03d}Z"


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return to_iso(seconds * SECOND_US)[:-5]


def _add_served(facts: Facts, context: RequestContext, attempts: list[Attempt]) -> None:
    last = attempts[-1]
    cost_nusd, provider_s = last.charge.total, last.ended - last.started
    for attempt in attempts[:-1]:
        cost_nusd += attempt.charge.total
        provider_s += attempt.ended - attempt.started
    target, usage = last.target, last.usage
    facts |= {
        "provider": target.provider.id,
        "served": target.mapping.key,
        "attempts": len(attempts),
        "cost_usd": format_usd(cost_nusd),
        "provider_ms": round(provider_s * 1000, 1),
        "gateway_ms": round(context.own_s * 1000, 2),
    }
    if usage is not None:
        facts["input_tokens"], facts["output_tokens"] = usage.input_total, usage.output_total
    if last.first_at:
        facts["first_token_ms"] = round((last.first_at - context.started) * 1000, 1)
    if context.outcome is not None and context.outcome.cached:
        facts["cached"] = True
    if last.finish:
        facts["finish"] = last.finish


def _add_failure(facts: Facts, reason: GatewayError, attempts: list[Attempt]) -> None:
    """Why it failed and what to do. Not the message: it may repeat what the caller or a provider said."""
    facts["code"] = reason.code
    tried = [
        {"provider": attempt.target.provider.id, "status": attempt.status, "error": error_type(attempt.error)}
        | {"code": attempt.error.code, "key": attempt.target.credential.ident}
        for attempt in attempts
        if attempt.error is not None
    ]
    if tried:
        facts["tried"] = tried
    remedy = remedy_of(reason)
    if remedy:
        facts["remedy"] = remedy


def write_json(facts: Facts) -> str:
    """The line as JSON."""
    return orjson.dumps(facts).decode() + "\n"


def write_text(facts: Facts) -> str:
    """The line for people: time, level, what was asked and how it ended, then name=value. Whatever a caller chose is
    quoted, so that it neither breaks the line nor looks like another name."""
    rest = [
        f" {name}={value}" if name in OURS else f" {name}={_value(value)}"
        for name, value in facts.items()
        if name not in HEAD
    ]
    at, level, status = facts["at"], facts["level"].upper(), facts["status"]
    return f"{at} {level} {facts['event']} {facts['operation']} {status}{''.join(rest)}\n"


def _value(value: object) -> str:
    if type(value) is str:
        return _quote(value) if len(value) < SHORT else orjson.dumps(value).decode()
    return str(value) if isinstance(value, int | float) else orjson.dumps(value).decode()


@lru_cache(maxsize=1_000)
def _quote(text: str) -> str:
    """Models, providers and addresses come again and again."""
    return text if PLAIN.fullmatch(text) else orjson.dumps(text).decode()
