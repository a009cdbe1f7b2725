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
        facts["key"], facts["project"] = caller.key_id, caller.project_id
        facts["organization"] = caller.organization_id
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
    last, cost_nusd, provider_s = attempts[-1], 0, 0.0
    target, usage = last.target, last.usage
    for attempt in attempts:
        cost_nusd += attempt.charge.total
        provider_s += attempt.ended - attempt.started
    facts["provider"], facts["served"], facts["attempts"] = target.provider.id, target.mapping.key, len(attempts)
    if usage is not None:
        facts["input_tokens"], facts["output_tokens"] = usage.input_total, usage.output_total
    facts["cost_usd"] = format_usd(cost_nusd)
    facts["provider_ms"], facts["gateway_ms"] = round(provider_s * 1000, 1), round(context.own_s * 1000, 2)
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
    facts = dict(facts)
    head = [str(facts.pop(name)) for name in ("at", "level", "event", "operation", "status")]
    head[1] = head[1].upper()
    return " ".join([*head, *(f"{name}={_value(value)}" for name, value in facts.items())]) + "\n"


def _value(value: object) -> str:
    text = str(value) if isinstance(value, str | int | float) else orjson.dumps(value).decode()
    if isinstance(value, str) and not PLAIN.fullmatch(text):
        return orjson.dumps(text).decode()
    return text
