"""The readable form of the request line: time, level, what was asked and how it ended, then name=value.

It is put together in one pass, since Python writes text at several times the cost at which a library writes JSON.
Whatever a caller chose is quoted, so that it neither breaks the line nor looks like another name.
"""

import re
from collections.abc import Callable
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

PLAIN = re.compile(r"[\w./:@+-]+", re.ASCII)
FAULT = 500  # statuses from here on are no caller's fault
REMEMBERED, LONGEST = 1_000, 300  # how many fragments of one kind are remembered, and how long each may be
MEMO = "readable request line"
# Templates, since numbers are cheapest to write all at once. A line begins with the second, ms, what stands before the
# request id, the id, the duration and the address; the rest is of a request that reached an upstream.
BEGIN = "%s.%03dZ{begin}%s duration_ms=%.1f%s"
SERVED = "%s%s%s%s attempts=%d cost_usd=%s provider_ms=%.1f gateway_ms=%s%s"


class Fragments(dict[K, str]):
    """What lines have in common, by what it depends on: put together once, since a request finds little of its own code
    in the processor's caches."""

    def __init__(self, write: Callable[[K], str]) -> None:
        super().__init__()
        self._write = write

    def __missing__(self, key: K) -> str:
        text = self._write(key)
        if len(text) <= LONGEST:
            if len(self) >= REMEMBERED:
                self.clear()
            self[key] = text
        return text


class ReadableLine:
    """Makes readable lines, without their end."""

    def __init__(self) -> None:
        self._begins = Fragments(_begin_of)
        self._served: Fragments[tuple[str, int]] = Fragments(lambda asked: _begin_of(asked) + SERVED)
        self._seconds: Fragments[int] = Fragments(lambda seconds: to_iso(seconds * SECOND_US)[:-5])
        self._hundredths: Fragments[int] = Fragments(lambda number: str(number / 100))
        self._addresses: Fragments[str] = Fragments(lambda ip: field("ip", ip))
        self.models: Fragments[str] = Fragments(lambda model: field("model", model))

    def line_of(self, finished: FinishedRequest) -> bytes:
        """The line of a request."""
        context = finished.context
        if context is not None:
            outcome = context.outcome
        else:
            outcome = None
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
            provider_s += sum(attempt.ended - attempt.started for attempt in attempts[:-1])
        if last.finish:
            rest = f" finish={last.finish}"
        else:
            rest = ""
        if outcome.cached or last.first_at or finished.error is not None or count > 1:
            rest = self._stream_of(context, outcome) + rest + _failure_of(finished)
        if usage is not None:
            rest = f" input_tokens={usage.input_total} output_tokens={usage.output_total}{rest}"
        # All at once: by far the cheapest way.
        line = self._served[finished.operation, finished.status] % (
            self._seconds[at_us // SECOND_US],
            at_us // 1000 % 1000,
            finished.request_id,
            finished.took_s * 1000,
            self._addresses[finished.peer],
            field("label", finished.shown_id) if finished.shown_id != finished.request_id else "",
            caller.memo.get(MEMO) or self._remember_owner(caller),
            # Told apart here, since a call is dear where most requests have a model alone.
            self._asked_of(finished, context)
            if request is None or context.source or finished.replayed
            else self.models[request.requested_model],
            target.memo.get(MEMO) or self._remember_target(target),
            count,
            format_usd(cost_nusd),
            provider_s * 1000,
            self._hundredths[int(context.own_s * 100_000 + 0.5)],
            rest,
        )
        return line.encode()

    def _unserved(self, finished: FinishedRequest, context: RequestContext | None) -> bytes:
        """The line of a request that reached none."""
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
            _quote(finished.request_id),  # of a path that nobody knows it is the caller's own
            finished.took_s * 1000,
            self._addresses[finished.peer]
            + (field("label", finished.shown_id) if finished.shown_id != finished.request_id else "")
            + owner
            + self._asked_of(finished, context)
            + _failure_of(finished),
        )
        return line.encode()

    def _asked_of(self, finished: FinishedRequest, context: RequestContext | None) -> str:
        """Model, source and whether it was an earlier answer."""
        asked = ""
        if context is not None and context.request is not None:
            asked = self.models[context.request.requested_model]
            if context.source:
                asked += field("source", context.source)
        return asked + (field("replayed", True) if finished.replayed else "")

    def _stream_of(self, context: RequestContext, outcome: Outcome) -> str:
        """The first content of a stream, and whether it came from the cache."""
        last = outcome.attempts[-1]
        if last.first_at:
            first = f" first_token_ms={(last.first_at - context.started) * 1000:.1f}"
        else:
            first = ""
        return first + (field("cached", True) if outcome.cached else "")

    def _remember_owner(self, caller: Caller) -> str:
        owner = caller.memo[MEMO] = self._write_owner(caller.key_id, caller.project_id, caller.organization_id)
        return owner

    def _write_owner(self, key: str, project: str, organization: str) -> str:
        return field("key", key) + field("project", project) + field("organization", organization)

    def _remember_target(self, target: Target) -> str:
        piece = target.memo[MEMO] = field("provider", target.provider.id) + field("served", target.mapping.key)
        return piece


def _begin_of(asked: tuple[str, int]) -> str:
    """The template of a line's begin by operation and status."""
    operation, status = asked
    level = "INFO" if status < FAULT else "WARNING"
    return BEGIN.replace("{begin}", f" {level} request {operation} {status} request_id=".replace("%", "%%"))


def _failure_of(finished: FinishedRequest) -> str:
    """Which attempts failed; for a request that failed also its code and the remedy."""
    reason = finished.error
    tried = tried_of(finished.context)
    text = field("tried", tried) if tried else ""
    if reason is None:
        return text
    remedy = remedy_of(reason)
    return field("code", reason.code) + text + (field("remedy", remedy) if remedy else "")


def tried_of(context: RequestContext | None) -> list[dict[str, Any]]:
    """The failed attempts of a request, each with the provider's own text, unless a policy forbids to log what it may
    quote."""
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
    if with_text:
        text = upstream_text(error)
    else:
        text = ""
    if text:
        return fact | {UPSTREAM_ERROR: text}
    return fact


def field(name: str, value: Any) -> str:
    """A fact as it stands in the line."""
    text = _quote(value) if isinstance(value, str) else value if value is True else orjson.dumps(value).decode()
    return f" {name}={text}"


def _quote(text: str) -> str:
    if PLAIN.fullmatch(text):
        return text
    return orjson.dumps(text).decode()
