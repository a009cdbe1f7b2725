"""Request log entries beside the usage rows: requests that were refused or failed, and callers' metadata."""

from collections.abc import Mapping

import orjson
from msgspec import DecodeError, Struct, json

from gateway import ids
from gateway.billing.context import billing_identity_of
from gateway.clock import Clock
from gateway.errors import Cancelled, Unauthenticated, Unavailable
from gateway.metering.counters import Counters
from gateway.metering.log.log_entries import LogEntry, write_rows
from gateway.metering.usage_table import raw_id
from gateway.runtime.allowances import Allowances
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.secret_text import hide_tokens
from gateway.store.journal import Journal
from gateway.store.partitions import AgingTables
from gateway.telemetry.request_observers import FinishedRequest, RequestObservers

# Refusals before any attempt and replayed answers are free for their caller, so their log entries are limited per key
# and per worker: a burst, then a rate per second. Beyond it they are counted, and logged as one entry for many.
KEY_BURST = 30
KEY_RATE = 0.5
WORKER_BURST = 300
WORKER_RATE = 5.0
# Kinds of refusals that are counted separately between two calls of `flush`; of others only the total is known.
MAX_REFUSAL_KINDS = 64
# With more queued rows the journal is reserved for settlements.
MAX_PENDING = 2_000
UNLOGGED = "requests_unlogged_total"
# The requested model is not read from a longer body.
MAX_BODY_BYTES = 4 << 20
LABEL_LENGTH = 64
MAX_NAME_LENGTH = 1_000


Ids = tuple[bytes, bytes, bytes, bytes]  # raw ids of organization, project, key and member


class _RequestedModel(Struct):
    model: str = ""


class RequestLog:
    """Writes log entries in the commits of usage rows. Never waits and never fails, since the accounts do not depend on
    the log."""

    def __init__(self, journal: Journal, clock: Clock, counters: Counters, tables: AgingTables) -> None:
        self._tables = tables
        self._journal = journal
        self._clock = clock
        self._counters = counters
        self._free = Allowances(KEY_BURST, KEY_RATE, WORKER_BURST, WORKER_RATE, clock.monotonic)
        self._flood: dict[LogEntry, int] = {}

    def attach(self, requests: RequestObservers) -> None:
        """Register as an observer of this worker's requests."""
        requests.observe_failures(self.failed)
        requests.observe_marked(self.marked)

    def failed(self, finished: FinishedRequest) -> None:
        """Log a request that was refused or failed at every provider. Failures with usage rows (responses that broke
        off, callers that disconnected) need no entry."""
        owner = _owner_of(finished)
        error = finished.error
        if owner is None or error is None or not finished.paid or error.status == Unauthenticated.status:
            return
        if finished.context is not None and finished.context.metadata:
            return  # `marked` logs it
        if not finished.attempts:
            self._refused(finished, owner)
        elif finished.status != Cancelled.status and not finished.attempts[-1].first_at:
            self._write(_entry_of(finished, owner, {}), {})

    def marked(self, finished: FinishedRequest) -> None:
        """Log the metadata of a request, and a request with a replayed answer, which has no usage row."""
        owner = _owner_of(finished)
        context = finished.context
        tags = context.metadata if context is not None else {}
        if owner is None or not finished.paid or not (tags or finished.replayed):
            return
        if (finished.refused or finished.replayed) and not self._may_write(owner):
            self._count(finished, owner)
        else:
            self._write(_entry_of(finished, owner, tags), tags)

    def flush(self) -> None:
        """Write one entry for each kind of refusal that was only counted since the last call."""
        flood = self._flood
        self._flood = {}
        for kind, count in flood.items():
            self._write(kind._replace(request=bytes.fromhex(ids.new_hex()), requests=count), {})

    def purge(self, should_continue: ShouldContinue = always) -> int:
        """Delete expired entries; returns how many. Unavailable: the next round deletes them."""
        return self._tables.purge(self._clock.now_us(), should_continue)

    def _refused(self, finished: FinishedRequest, owner: Ids) -> None:
        if self._may_write(owner):
            self._write(_entry_of(finished, owner, {}), {})
        else:
            self._count(finished, owner)

    def _may_write(self, owner: Ids) -> bool:
        return self._free.take(owner[2])

    def _count(self, finished: FinishedRequest, owner: Ids) -> None:
        code = finished.error.code if finished.error is not None else ""
        kind = LogEntry(bytes(16), *owner, 1, *_measured(finished), "", "", _clean(code)[:64] or None)
        if kind in self._flood or len(self._flood) < MAX_REFUSAL_KINDS:
            self._flood[kind] = self._flood.get(kind, 0) + 1
        else:
            self._counters.add(UNLOGGED)

    def _write(self, entry: LogEntry, tags: Mapping[str, str]) -> None:
        if self._journal.pending > MAX_PENDING:
            self._counters.add(UNLOGGED)
            return
        try:
            self._journal.append(*write_rows(entry, tags))
        except Unavailable:
            self._counters.add(UNLOGGED)


def _owner_of(finished: FinishedRequest) -> Ids | None:
    """Return the ids of the request's owner, also for a valid key of a closed project or organization."""
    if finished.caller is not None:
        return billing_identity_of(finished.caller).ids
    if finished.error is None or finished.error.caller_ids is None:
        return None
    key, project, organization, member = map(raw_id, finished.error.caller_ids)
    return organization, project, key, member


def _entry_of(finished: FinishedRequest, owner: Ids, tags: Mapping[str, str]) -> LogEntry:
    context = finished.context
    error = finished.error
    label = finished.shown_id if finished.shown_id != finished.request_id else ""
    return LogEntry(
        bytes.fromhex(finished.request_id),
        *owner,
        1,
        *_measured(finished),
        "" if finished.attempts else _clean(hide_tokens(_requested_model(finished)[:MAX_NAME_LENGTH]))[:255],
        context.source if context is not None else "",
        None if error is None else _clean(error.code)[:64],
        _clean(label)[:LABEL_LENGTH] or None,
        orjson.dumps(dict(tags)).decode() if tags else None,
    )


def _measured(finished: FinishedRequest) -> tuple[int, str, str]:
    """Return status, operation and path."""
    context = finished.context
    operation = context.operation if context is not None else ""
    return finished.status, operation, finished.operation.partition(" ")[2][:255]


def _requested_model(finished: FinishedRequest) -> str:
    """Return the requested model as the caller wrote it, "" when it cannot be read."""
    context = finished.context
    if context is not None and context.request is not None:
        return context.request.requested_model
    if len(finished.body) > MAX_BODY_BYTES:
        return ""
    try:
        return json.decode(finished.body, type=_RequestedModel).model
    except (DecodeError, RecursionError):
        return ""


def _clean(text: str) -> str:
    """Return the text as every store accepts it: without NUL and lone surrogates."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()
