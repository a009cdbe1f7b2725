"""A request of the log, assembled from its usage rows, log entry and retained payload."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import orjson
from msgspec import Struct

from gateway.errors import Cancelled, Internal, UpstreamFailed
from gateway.metering.figures import EXTRA_COUNTS
from gateway.metering.log.log_entries import LogEntry, entries_of
from gateway.metering.models import BYOK, CACHED, STREAMED
from gateway.metering.payload_table import STREAMED as PAYLOAD_STREAMED
from gateway.metering.payload_table import LogInfo, payloads_of
from gateway.metering.usage_table import COLUMNS, UsageRecord, record_of_row
from gateway.store.database import Database
from gateway.store.partitions import time_of

OK = 200
CLIENT_DISCONNECT = "client_disconnect"
GUARDRAIL_BLOCKED = "guardrail_blocked"
INTERRUPTED = "interrupted"


class Owner(NamedTuple):
    """The owner of a request: the raw ids of organization, project, key and member."""

    organization: bytes
    project: bytes
    api_key: bytes
    member: bytes


class LoggedRequest(Struct, frozen=True):
    """One request. `attempts` are its usage rows, in order; `entry` is set if it was rejected, failed or had metadata;
    `payload` while that is retained. At least one of the three is set."""

    request: bytes
    attempts: tuple[UsageRecord, ...] = ()
    entry: LogEntry | None = None
    payload: LogInfo | None = None

    @property
    def request_id(self) -> str:
        """The id as 32 hex digits."""
        return self.request.hex()

    @property
    def at_us(self) -> int:
        """When the request arrived, in microseconds, exact to the millisecond."""
        return time_of(self.request)

    @property
    def owner(self) -> Owner:
        row = self._fullest
        return Owner(row.organization, row.project, row.api_key, row.member)

    @property
    def _fullest(self) -> UsageRecord | LogEntry | LogInfo:
        """The most complete record of the request."""
        row = self.attempts[0] if self.attempts else self.entry or self.payload
        assert row is not None
        return row

    @property
    def last(self) -> UsageRecord | None:
        """The attempt that produced the response; None for a request that was rejected before any."""
        if self.attempts:
            return self.attempts[-1]
        return None

    @property
    def requests(self) -> int:
        """The number of requests that this record represents."""
        if self.entry:
            return self.entry.requests
        return 1

    @property
    def operation(self) -> str:
        return self._fullest.operation

    @property
    def path(self) -> str:
        """The path; "" if unknown."""
        row = self.entry or self.payload
        if row:
            return row.path
        return ""

    @property
    def asked(self) -> str:
        """The model as the caller wrote it."""
        return self._fullest.asked

    @property
    def source(self) -> str:
        row = self.last or self.entry
        if row:
            return row.source
        return ""

    @property
    def label(self) -> str:
        """The caller's x-request-id."""
        row = self.last or self.entry
        if row:
            return row.label or ""
        return ""

    @property
    def tags(self) -> dict[str, str]:
        """The caller's metadata."""
        if self.entry:
            return self.entry.tags
        tags = next((attempt.tags for attempt in self.attempts if attempt.tags), None)
        if tags:
            decoded: dict[str, str] = orjson.loads(tags)
            return decoded
        return {}

    @property
    def session(self) -> str:
        """The session of an agent, "" without one."""
        return next((attempt.session for attempt in self.attempts if attempt.session), "")

    @property
    def served(self) -> UsageRecord | None:
        """The attempt that succeeded; None if all failed."""
        last = self.last
        if last is not None and last.error is None:
            return last
        return None

    @property
    def status(self) -> int:
        """The response status; 200 for a streamed answer that broke off, because the stream began with it."""
        if self.entry is not None and (self.entry.status != OK or self.entry.error):
            return self.entry.status
        if self.payload is not None:
            return self.payload.status
        last = self.last
        if last is None or last.error is None or (last.flags & STREAMED and (last.ttft_ms or last.output)):
            return OK
        return {
            CLIENT_DISCONNECT: Cancelled.status,
            GUARDRAIL_BLOCKED: OK,  # a stream that began with its refusal
            INTERRUPTED: Internal.status,
        }.get(last.finish, UpstreamFailed.status)

    @property
    def error(self) -> str:
        """The error code of the response or of the broken stream; "" on success."""
        if self.entry is not None and self.entry.error:
            return self.entry.error
        if self.last:
            return self.last.error or ""
        return ""

    @property
    def codes(self) -> set[str]:
        """All error codes: that of the response and those of its attempts."""
        return {code for code in (self.error, *(attempt.error for attempt in self.attempts)) if code}

    @property
    def finish(self) -> str:
        if self.last:
            return self.last.finish
        return ""

    @property
    def streamed(self) -> bool:
        if self.last is not None:
            return bool(self.last.flags & STREAMED)
        return bool(self.payload and self.payload.flags & PAYLOAD_STREAMED)

    @property
    def cached(self) -> bool:
        return bool(self.last and self.last.flags & CACHED)

    @property
    def byok(self) -> bool:
        """Whether the organization's provider key paid."""
        return bool(self.last and self.last.mode == BYOK)

    @property
    def duration_ms(self) -> int:
        return sum(attempt.duration_ms for attempt in self.attempts)

    @property
    def cost_nusd(self) -> int:
        return sum(attempt.cost_nusd for attempt in self.attempts)

    @property
    def storage_nusd(self) -> int:
        return sum(attempt.storage_nusd or 0 for attempt in self.attempts)

    @property
    def discount_nusd(self) -> int:
        return sum(attempt.discount_nusd or 0 for attempt in self.attempts)

    @property
    def input_tokens(self) -> int:
        return sum(map(input_of, self.attempts))

    @property
    def output_tokens(self) -> int:
        return sum(map(output_of, self.attempts))


def input_of(record: UsageRecord) -> int:
    """Return all input of an attempt, in tokens of every kind, as activity counts them."""
    units = record.details.get("units", {})
    plain = record.input + record.cache_read + record.cache_write
    total: int = plain + sum(units.get(name, 0) for name in EXTRA_COUNTS["input_tokens"])
    return total


def output_of(record: UsageRecord) -> int:
    """Return all output of an attempt, in tokens of every kind."""
    units = record.details.get("units", {})
    total: int = record.output + sum(units.get(name, 0) for name in EXTRA_COUNTS["output_tokens"])
    return total


def read_requests(database: Database, requests: Sequence[bytes]) -> list[LoggedRequest]:
    """Return the records of these requests, in their order; unknown requests are left out. Inside a read."""
    if not requests:
        return []
    attempts = _attempts_of(database, requests)
    entries = entries_of(database, list(requests))
    payloads = payloads_of(database, list(requests))
    records = (
        LoggedRequest(ident, tuple(attempts.get(ident, ())), entries.get(ident), payloads.get(ident))
        for ident in requests
    )
    return [record for record in records if record.attempts or record.entry or record.payload]


def find_request(database: Database, request_id: str) -> LoggedRequest | None:
    """Return the request with an id (32 hex digits); None if it is unknown or was deleted."""
    try:
        request = bytes.fromhex(request_id)
    except ValueError:
        return None
    records = database.read(partial(read_requests, database, [request]))
    if records:
        return records[0]
    return None


def _attempts_of(database: Database, requests: Iterable[bytes]) -> dict[bytes, list[UsageRecord]]:
    request_ids = list(requests)
    places = ", ".join("?" * len(request_ids))
    sql = f"SELECT {COLUMNS} FROM usage WHERE request IN ({places}) ORDER BY request, attempt, kind"
    attempts: dict[bytes, list[UsageRecord]] = {}
    for row in database.execute(sql, request_ids).fetchall():
        record = record_of_row(row)
        attempts.setdefault(record.request, []).append(record)
    return attempts
