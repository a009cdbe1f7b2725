"""The request line: one log line at the end of each request, as JSON or readable text, if the operator enabled it.

It names the caller, the operation, the provider and the result, but no content and no secrets.
"""

import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Literal, TypeVar

import orjson
from msgspec import Struct, json

from gateway.billing.context import Attempt, Outcome, RequestContext, error_type, upstream_text
from gateway.billing.usage_rows import UPSTREAM_ERROR
from gateway.callers.access import logs_text
from gateway.callers.authentication import Caller
from gateway.clock import SECOND_US, to_iso
from gateway.configuration.settings import MANAGE
from gateway.errors import GatewayError
from gateway.money import format_usd
from gateway.providers.protocol import Target
from gateway.runtime.threads import later
from gateway.secret_text import hide_tokens
from gateway.telemetry.request_observers import PROBE_PATHS, FinishedRequest

# Remedies that an operator can apply after a failed request, by error code.

STORE_REMEDY = "the gateway's own store: see the log's line with the event database.away, and /readyz"

# The operator's counterpart of docs/errors.md. Errors that only the caller can fix have none.
REMEDIES = {
    "invalid_api_key": f"the caller's token is wrong or its key is over: {MANAGE} keys list tells the state of each",
    "insufficient_credits": f"add credits ({MANAGE} credits grant) or let the organization be unlimited "
    f"({MANAGE} credits unlimited)",
    "key_limit_reached": f"raise the key's limit: {MANAGE} limits set",
    "key_period_limit_reached": f"raise the key's limit ({MANAGE} limits set) or wait for its period's end",
    "member_limit_reached": f"raise the member's limit: {MANAGE} limits set",
    "team_limit_reached": f"raise the team's limit: {MANAGE} limits set",
    "spending_limit_reached": f"raise the organization's limit that the message names: {MANAGE} limits",
    "session_budget_reached": f"a new session, or a higher budget of sessions: {MANAGE} session-budgets set",
    "run_budget_reached": f"a new run, or a higher budget of runs: {MANAGE} session-budgets set",
    "session_spending_limit_reached": "raise realtime.session_usd, or let the client open another session",
    "provider_key_limit_reached": f"raise the bound of the provider key: {MANAGE} provider-keys",
    "budget_exhausted_mid_stream": f"the answer outgrew what was left: raise the limit ({MANAGE} limits set) or add "
    f"credits ({MANAGE} credits grant)",
    "permission_denied": f"a rule or policy says no: {MANAGE} rules list",
    "model_not_allowed": f"a rule or policy says no: {MANAGE} rules list",
    "budget_in_use": "nothing, if it is rare: requests in progress have reserved the budget; else raise the limit",
    "rate_limit_exceeded": f"the caller is over its rate limit: {MANAGE} rates show",
    "project_archived": f"the key's project is archived: {MANAGE} projects list",
    "organization_blocked": f"the key's organization is blocked: {MANAGE} organizations list",
    "no_provider_credential": "set a key of a provider of this model (LLM_<PROVIDER>_API_KEY) and restart, or add one: "
    f"{MANAGE} provider-keys add",
    "host_not_allowed": "the caller used another name: GATEWAY_ALLOWED_HOSTS lists those that are answered",
    "metrics_off": "set GATEWAY_METRICS_TOKEN",
    "metrics_token": "give the scraper the token of GATEWAY_METRICS_TOKEN",
    "request_too_large": "the body is over MAX_REQUEST_BODY_MB",
    "response_storage_full": "raise responses.max_organization_mb, or let the organization delete stored responses",
    "upstream_rate_limited": "every provider that was tried limits our rate: ask them for more, or add a provider or "
    "provider key for this model",
    "overloaded": "the providers that were tried, or this process (see llmgateway_in_flight), have too much to do: add "
    "a provider, a worker or a node",
    "timeout": "no provider answered in time: see llmgateway_attempt_seconds, and timeouts in the settings",
    "all_providers_failed": "see `tried` in this line: a refused credential wants another key, an unreachable provider "
    "its address and network checked",
    "upstream_refused": "the provider refused our credential or account: check the key and its funding there",
    "workload_identity_failed": "the gateway's host got no token for the provider: the cause is in the event "
    f"workload_identity.failing and in {MANAGE} status",
    "upstream_error": "the provider failed: see its status page; llmgateway_attempts_total tells how often",
    "fetch_failed": "no connection to the provider: check its address, DNS and the outgoing network",
    "stream_truncated": "the provider ended its stream early: see llmgateway_streams_cut_total",
    "no_available_provider": "nothing answers at any provider of this model: check network and addresses",
    "service_unavailable": STORE_REMEDY,
    "internal_error": "a fault of the gateway: the log has the exception under this request id",
    "interrupted": "its worker died before it was answered: see the log around that time",
}


def remedy_of(error: GatewayError) -> str:
    """Return the remedy, "" where only the caller can act."""
    return REMEDIES.get(error.code, "")


# The readable form of the request line: time, level, operation and status, then name=value.
#
# It is written in one pass, since text costs Python a fraction of the time that a library needs for JSON. Values that
# a caller chose are quoted, so that they cannot break the line or look like another name.

K = TypeVar("K")

PLAIN_VALUE = re.compile(r"[\w./:@+-]+", re.ASCII)
FIRST_FAULT_STATUS = 500  # statuses from here on are not the caller's fault
CACHE_SIZE = 1_000  # cached fragments of one kind
MAX_FRAGMENT_LENGTH = 300  # characters of a cached fragment
LINE_KEY = "readable request line"
# One template for a whole line, since that formats numbers fastest. A line begins with the second, ms, the level,
# operation and status, the request id, the duration and the address; SERVED is the rest for an upstream request.
LINE_BEGIN = "%s.%03dZ{begin}%s duration_ms=%.1f%s"
SERVED_PART = "%s%s%s%s attempts=%d cost_usd=%s provider_ms=%.1f gateway_ms=%s%s"


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
    if finished.context is not None and finished.context.guard is not None:
        text += _guardrails_of(finished.context.guard.findings)
    return text


def _guardrails_of(findings: Any) -> str:
    """Return what the guardrails of a request found, and what they could not read."""
    found = ",".join(":".join(map(str, one)) for one in findings.found())
    unread = ",".join(findings.not_checked())
    return (field("guardrails", found) if found else "") + (field("not_checked", unread) if unread else "")


def _begin_of(result: tuple[str, int]) -> str:
    """Return the template of a line's beginning by operation and status."""
    operation, status = result
    level = "INFO" if status < FIRST_FAULT_STATUS else "WARNING"
    return LINE_BEGIN.replace("{begin}", f" {level} request {operation} {status} request_id=".replace("%", "%%"))


def _served_of(result: tuple[str, int]) -> str:
    return _begin_of(result) + SERVED_PART


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


# Lines are formatted together, since code that runs once per request finds little of itself in the processor's caches,
# and written together, so that no request waits for a write.
GATHER_S = 0.05
MADE_AT_ONCE = 16
MAX_LINES = 96  # more save no time, and waiting lines displace other data from the caches
LARGE_BODY_BYTES = 16_384  # bytes of a body; such a request is not kept until others have ended
# Operations of probes, which are not logged while they succeed.
PROBE_OPERATIONS = frozenset(("GET /metrics", *(f"GET {path}" for path in PROBE_PATHS)))


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
    guardrails: list[dict[str, Any]] | None = None
    not_checked: list[str] | None = None


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
        if finished.operation in PROBE_OPERATIONS and finished.status < FIRST_FAULT_STATUS:
            return
        ended = self._ended
        ended.append(finished)
        # An error keeps the frames of its traceback and everything that they refer to.
        if len(ended) >= MADE_AT_ONCE or finished.error is not None or len(finished.body) > LARGE_BODY_BYTES:
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
        "info" if status < FIRST_FAULT_STATUS else "warning",
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
        _add_guardrails(line, context)
        outcome = context.outcome
        if outcome is not None and outcome.attempts:
            _add_served(line, context, outcome)
    if error is not None:
        line.code, line.tried, line.remedy = error.code, tried_of(context) or None, remedy_of(error) or None
    return write_json(line)


def _add_guardrails(line: RequestLine, context: RequestContext) -> None:
    if context.guard is not None:
        line.guardrails = [found._asdict() for found in context.guard.findings.found()] or None
        line.not_checked = context.guard.findings.not_checked() or None


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
