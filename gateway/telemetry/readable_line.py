"""The readable form of the request line: time, level, operation and status, then name=value.

It is written in one pass, since text costs Python a fraction of the time that a library needs for JSON. Values that a
caller chose are quoted, so that they cannot break the line or look like another name.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import orjson

from gateway.accounts.access import logs_text
from gateway.accounts.authentication import Caller
from gateway.billing.context import RequestContext
from gateway.billing.outcome import Attempt, Outcome, error_type, upstream_text
from gateway.billing.usage_rows import UPSTREAM_ERROR
from gateway.clock import SECOND_US, to_iso
from gateway.errors import GatewayError
from gateway.money import format_usd
from gateway.providers.protocol import Target
from gateway.telemetry.finished import FinishedRequest
from gateway.telemetry.remedies import remedy_of

K = TypeVar("K")

PLAIN_VALUE = re.compile(r"[\w./:@+-]+", re.ASCII)
FAULT = 500  # statuses from here on are not the caller's fault
CACHE_SIZE = 1_000  # cached fragments of one kind
MAX_FRAGMENT_LENGTH = 300  # characters of a cached fragment
LINE_KEY = "readable request line"
# One template for a whole line, since that formats numbers fastest. A line begins with the second, ms, the level,
# operation and status, the request id, the duration and the address; SERVED is the rest for an upstream request.
BEGIN = "%s.%03dZ{begin}%s duration_ms=%.1f%s"
SERVED = "%s%s%s%s attempts=%d cost_usd=%s provider_ms=%.1f gateway_ms=%s%s"


class Fragments(dict[K, str]):
    """Cached parts of lines, by the value that they depend on. Each is formatted once, since a request finds little of
    its code in the processor's caches."""

    def __init__(self, write: Callable[[K], str]) -> None:
        super().__init__()
        self._write = write

    def __missing__(self, key: K) -> str:
        text = self._write(key)
        if len(text) <= MAX_FRAGMENT_LENGTH:
            if len(self) >= CACHE_SIZE:
                self.clear()
            self[key] = text
        return text


class ReadableLine:
    """Formats readable lines without a line end."""

    def __init__(self) -> None:
        self._begins = Fragments(_begin_of)
        self._served: Fragments[tuple[str, int]] = Fragments(_served_of)
        self._seconds: Fragments[int] = Fragments(_second_of)
        self._hundredths: Fragments[int] = Fragments(_hundredths_of)
        self._addresses: Fragments[str] = Fragments(partial(field, "ip"))
        self.models: Fragments[str] = Fragments(partial(field, "model"))

    def line_of(self, finished: FinishedRequest) -> bytes:
        """Return the line of a request."""
        context = finished.context
        outcome = None if context is None else context.outcome
        if context is None or outcome is None or not outcome.attempts:
            return self._unserved(finished, context)
        attempts = outcome.attempts
        caller = context.caller
        request = context.request
        at_us = finished.at_us
        count = len(attempts)
        last = attempts[-1]
        cost_nusd = last.charge.total
        provider_s = last.ended - last.started
        target = last.target
        usage = last.usage
        if count > 1:
            cost_nusd += sum(attempt.charge.total for attempt in attempts[:-1])
            provider_s = outcome.provider_s
        rest = f" finish={last.finish}" if last.finish else ""
        if outcome.cached or last.first_at or finished.error is not None or count > 1:
            rest = self._stream_of(context, outcome) + rest + _failure_of(finished)
        if usage is not None:
            rest = f" input_tokens={usage.input_total} output_tokens={usage.output_total}{rest}"
        # One formatting operation is by far the cheapest.
        line = self._served[finished.operation, finished.status] % (
            self._seconds[at_us // SECOND_US],
            at_us // 1000 % 1000,
            finished.request_id,
            finished.took_s * 1000,
            self._addresses[finished.peer],
            _ids_of(finished),
            caller.memo.get(LINE_KEY) or self._remember_owner(caller),
            # Decided here, since most requests have only a model, and a call is expensive.
            self._asked_of(finished, context)
            if request is None or context.source or finished.replayed
            else self.models[request.requested_model],
            target.memo.get(LINE_KEY) or self._remember_target(target),
            count,
            format_usd(cost_nusd),
            provider_s * 1000,
            self._hundredths[int(context.own_s * 100_000 + 0.5)],
            rest,
        )
        return line.encode()

    def _unserved(self, finished: FinishedRequest, context: RequestContext | None) -> bytes:
        """Return the line of a request without an upstream call."""
        caller = finished.caller
        error = finished.error
        at_us = finished.at_us
        owner = ""
        if caller is not None:
            owner = self._write_owner(caller.key_id, caller.project_id, caller.organization_id)
        elif error is not None and error.caller_ids is not None:
            owner = self._write_owner(*error.caller_ids[:3])
        line = self._begins[finished.operation, finished.status] % (
            self._seconds[at_us // SECOND_US],
            at_us // 1000 % 1000,
            _quote(finished.request_id),  # for an unknown path it is the caller's own
            finished.took_s * 1000,
            self._addresses[finished.peer]
            + _ids_of(finished)
            + owner
            + self._asked_of(finished, context)
            + _failure_of(finished),
        )
        return line.encode()

    def _asked_of(self, finished: FinishedRequest, context: RequestContext | None) -> str:
        """Return the model, the source, and whether the answer was replayed."""
        text = ""
        if context is not None and context.request is not None:
            text = self.models[context.request.requested_model]
            if context.source:
                text += field("source", context.source)
        if finished.replayed:
            text += field("replayed", True)
        return text

    def _stream_of(self, context: RequestContext, outcome: Outcome) -> str:
        """Return the time of a stream's first content, and whether it came from the cache."""
        last = outcome.attempts[-1]
        text = ""
        if last.first_at:
            text = f" first_token_ms={(last.first_at - context.started) * 1000:.1f}"
        if outcome.cached:
            text += field("cached", True)
        return text

    def _remember_owner(self, caller: Caller) -> str:
        owner = caller.memo[LINE_KEY] = self._write_owner(caller.key_id, caller.project_id, caller.organization_id)
        return owner

    def _write_owner(self, key: str, project: str, organization: str) -> str:
        return field("key", key) + field("project", project) + field("organization", organization)

    def _remember_target(self, target: Target) -> str:
        piece = target.memo[LINE_KEY] = field("provider", target.provider.id) + field("served", target.mapping.key)
        return piece


def _ids_of(finished: FinishedRequest) -> str:
    """Return the caller's own ids of the request: its label, and its trace."""
    text = ""
    if finished.shown_id != finished.request_id:
        text = field("label", finished.shown_id)
    if trace_id := finished.trace_id:
        text += field("trace_id", trace_id)
    return text


def _begin_of(result: tuple[str, int]) -> str:
    """Return the template of a line's beginning by operation and status."""
    operation, status = result
    level = "INFO" if status < FAULT else "WARNING"
    return BEGIN.replace("{begin}", f" {level} request {operation} {status} request_id=".replace("%", "%%"))


def _served_of(result: tuple[str, int]) -> str:
    return _begin_of(result) + SERVED


def _second_of(seconds: int) -> str:
    return to_iso(seconds * SECOND_US)[:-5]


def _hundredths_of(number: int) -> str:
    return str(number / 100)


def _failure_of(finished: FinishedRequest) -> str:
    """Return the failed attempts; for a failed request also its code and the remedy."""
    reason = finished.error
    tried = tried_of(finished.context)
    text = field("tried", tried) if tried else ""
    if reason is None:
        return text
    text = field("code", reason.code) + text
    remedy = remedy_of(reason)
    if remedy:
        text += field("remedy", remedy)
    return text


def tried_of(context: RequestContext | None) -> list[dict[str, Any]]:
    """Return the failed attempts of a request, each with the provider's text unless a policy forbids to log content."""
    if context is None or context.outcome is None:
        return []
    with_text = logs_text(context.caller.rules)
    attempts = context.outcome.attempts
    return [_tried(attempt, attempt.error, with_text) for attempt in attempts if attempt.error is not None]


def _tried(attempt: Attempt, error: GatewayError, with_text: bool) -> dict[str, Any]:
    fact = {
        "provider": attempt.target.provider.id,
        "status": attempt.status,
        "error": error_type(error),
        "code": error.code,
        "key": attempt.target.credential.ident,
    }
    text = upstream_text(error) if with_text else ""
    if text:
        return fact | {UPSTREAM_ERROR: text}
    return fact


def field(name: str, value: Any) -> str:
    """Return a fact as " name=value"."""
    if isinstance(value, str):
        text = _quote(value)
    elif value is True:
        text = "True"
    else:
        text = orjson.dumps(value).decode()
    return f" {name}={text}"


def _quote(text: str) -> str:
    if PLAIN_VALUE.fullmatch(text):
        return text
    return orjson.dumps(text).decode()
