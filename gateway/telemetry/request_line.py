"""The request line: one log line at the end of each request, as JSON or readable text, if the operator enabled it.

It names the caller, the operation, the provider and the result, but no content and no secrets.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

from msgspec import Struct, json

from gateway.billing.context import RequestContext
from gateway.billing.outcome import Outcome
from gateway.clock import SECOND_US, to_iso
from gateway.money import format_usd
from gateway.runtime.threads import later
from gateway.secret_text import hide_tokens
from gateway.telemetry.finished import FinishedRequest
from gateway.telemetry.probe_paths import PROBE_PATHS
from gateway.telemetry.readable_line import FAULT, ReadableLine, tried_of
from gateway.telemetry.remedies import remedy_of

# Lines are formatted together, since code that runs once per request finds little of itself in the processor's caches,
# and written together, so that no request waits for a write.
GATHER_S = 0.05
MADE_AT_ONCE = 16
MAX_LINES = 96  # more save no time, and waiting lines displace other data from the caches
LARGE = 16_384  # bytes of a body; such a request is not kept until others have ended
# Operations of probes, which are not logged while they succeed.
PROBES = frozenset(("GET /metrics", *(f"GET {path}" for path in PROBE_PATHS)))


class RequestLine(Struct, omit_defaults=True, gc=False):
    """The members of a JSON line in order; None is omitted. Times are milliseconds, costs dollars."""

    at: str
    level: str
    event: str
    request_id: str
    operation: str
    status: int
    duration_ms: float
    ip: str
    label: str | None = None
    trace_id: str | None = None
    key: str | None = None
    project: str | None = None
    organization: str | None = None
    model: str | None = None
    source: str | None = None
    replayed: bool | None = None
    provider: str | None = None
    served: str | None = None
    attempts: int | None = None
    cost_usd: str | None = None
    provider_ms: float | None = None
    gateway_ms: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    first_token_ms: float | None = None
    cached: bool | None = None
    finish: str | None = None
    code: str | None = None
    tried: list[dict[str, Any]] | None = None
    remedy: str | None = None


write_json = json.Encoder().encode


class RequestLines:
    """Writes a line for each request except successful probes. `write` takes whole lines."""

    def __init__(self, form: Literal["text", "json"], write: Callable[[str], object]) -> None:
        if form == "json":
            self._line_of = json_line
        else:
            self._line_of = ReadableLine().line_of
        self._write = write
        self._ended: list[FinishedRequest] = []  # requests without a line yet
        self._lines: list[bytes] = []
        self._due = False

    def __call__(self, finished: FinishedRequest) -> None:
        if finished.operation in PROBES and finished.status < FAULT:
            return
        ended = self._ended
        ended.append(finished)
        # An error keeps the frames of its traceback and everything that they refer to.
        if len(ended) >= MADE_AT_ONCE or finished.error is not None or len(finished.body) > LARGE:
            self._make()
        if not self._due:
            self._due = True
            later(GATHER_S, self._flush_due)

    def _make(self) -> None:
        ended = self._ended
        self._ended = []
        lines = self._lines
        lines.extend(map(self._line_of, ended))
        if len(lines) >= MAX_LINES:
            self._write_out()

    def _flush_due(self) -> None:
        self._due = False
        self.flush()

    def flush(self) -> None:
        """Write the waiting lines."""
        self._make()
        if self._lines:
            self._write_out()

    def _write_out(self) -> None:
        lines = self._lines
        self._lines = []
        lines.append(b"")
        self._write(hide_tokens(b"\n".join(lines).decode()))


def json_line(finished: FinishedRequest) -> bytes:
    """Return the line of a request as JSON."""
    status = finished.status
    caller = finished.caller
    context = finished.context
    error = finished.error
    line = RequestLine(
        _moment(finished.at_us // 1000),
        "info" if status < FAULT else "warning",
        "request",
        finished.request_id,
        finished.operation,
        status,
        # `round` takes six times as long.
        (finished.took_s * 10_000 + 0.5) // 1 / 10,
        finished.peer,
    )
    if finished.shown_id != finished.request_id:
        line.label = finished.shown_id
    line.trace_id = finished.trace_id
    if caller is not None:
        line.key = caller.key_id
        line.project = caller.project_id
        line.organization = caller.organization_id
    elif error is not None and error.caller_ids is not None:
        line.key, line.project, line.organization, _ = error.caller_ids
    if finished.replayed:
        line.replayed = True
    if context is not None:
        if context.request is not None:
            line.model = context.request.requested_model
            if context.source:
                line.source = context.source
        outcome = context.outcome
        if outcome is not None and outcome.attempts:
            _add_served(line, context, outcome)
    if error is not None:
        line.code, line.tried, line.remedy = error.code, tried_of(context) or None, remedy_of(error) or None
    return write_json(line)


@lru_cache(maxsize=4)
def _moment(at_ms: int) -> str:
    """Return a time in ISO 8601 (UTC, milliseconds), cached since requests that share a commit end together."""
    seconds, ms = divmod(at_ms, 1000)
    return f"{_second(seconds)}.{ms:03d}Z"


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return to_iso(seconds * SECOND_US)[:-5]


def _add_served(line: RequestLine, context: RequestContext, outcome: Outcome) -> None:
    attempts = outcome.attempts
    count = len(attempts)
    last = attempts[-1]
    target = last.target
    usage = last.usage
    cost_nusd = last.charge.total
    provider_s = last.ended - last.started
    if count > 1:
        cost_nusd += sum(attempt.charge.total for attempt in attempts[:-1])
        provider_s = outcome.provider_s
        line.tried = tried_of(context) or None
    line.provider = target.provider.id
    line.served = target.mapping.key
    line.attempts = count
    line.cost_usd = format_usd(cost_nusd)
    line.provider_ms = (provider_s * 10_000 + 0.5) // 1 / 10
    line.gateway_ms = (context.own_s * 100_000 + 0.5) // 1 / 100
    if usage is not None:
        line.input_tokens = usage.input_total
        line.output_tokens = usage.output_total
    if last.first_at:
        line.first_token_ms = ((last.first_at - context.started) * 10_000 + 0.5) // 1 / 10
    if outcome.cached:
        line.cached = True
    if last.finish:
        line.finish = last.finish
