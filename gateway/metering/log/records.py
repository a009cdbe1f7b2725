"""A request of the log, put together from its usage rows, log entry and retained payload."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gateway.errors import Cancelled, Internal, UpstreamFailed
from gateway.metering.figures import UNITS
from gateway.metering.log.log_entries import LogEntry, entries_of
from gateway.metering.models import BYOK, CACHED, STREAMED
from gateway.metering.payload_table import STREAMED as PAYLOAD_STREAMED
from gateway.metering.payload_table import LogInfo, payloads_of
from gateway.metering.usage_table import COLUMNS, UsageRecord, record_of_row
from gateway.store.database import Database
from gateway.store.partitions import time_of

OK = 200
HUNG_UP = "client_disconnect"
INTERRUPTED = "interrupted"


class Owner(NamedTuple):
    """Whose request it was: the raw ids of organization, project, key and member."""

    organization: bytes
    project: bytes
    api_key: bytes
    member: bytes


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request. `attempts` are its usage rows, in order; `entry` is there when it was refused or failed or brought
    metadata, `payload` while that is retained. At least one of the three is there."""

    request: bytes
    attempts: tuple[UsageRecord, ...] = ()
    entry: LogEntry | None = None
    payload: LogInfo | None = None

    @property
    def request_id(self) -> str:
        """32 hex digits."""
        return self.request.hex()

    @property
    def at_us(self) -> int:
        """When it came in, to the millisecond."""
        return time_of(self.request)

    @property
    def owner(self) -> Owner:
        row = self._fullest
        return Owner(row.organization, row.project, row.api_key, row.member)

    @property
    def _fullest(self) -> UsageRecord | LogEntry | LogInfo:
        """What tells of the request as a whole."""
        row = self.attempts[0] if self.attempts else self.entry or self.payload
        assert row is not None
        return row

    @property
    def last(self) -> UsageRecord | None:
        """The attempt that the caller's answer came from; None for a request that was refused before any."""
        if self.attempts:
            return self.attempts[-1]
        return None

    @property
    def requests(self) -> int:
        """How many requests it stands for."""
        if self.entry:
            return self.entry.requests
        return 1

    @property
    def operation(self) -> str:
        return self._fullest.operation

    @property
    def path(self) -> str:
        """ "" where it is not known."""
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
        """The caller's own x-request-id."""
        row = self.last or self.entry
        if row:
            return row.label or ""
        return ""

    @property
    def tags(self) -> dict[str, str]:
        """The caller's metadata."""
        if self.entry:
            return self.entry.tags
        return {}

    @property
    def served(self) -> UsageRecord | None:
        """The attempt that answered; None when nothing did."""
        last = self.last
        if last is not None and last.error is None:
            return last
        return None

    @property
    def status(self) -> int:
        """What the caller got; of an answer that broke while it was streamed the 200 that it began with."""
        if self.entry is not None and (self.entry.status != OK or self.entry.error):
            return self.entry.status
        if self.payload is not None:
            return self.payload.status
        last = self.last
        if last is None or last.error is None or (last.flags & STREAMED and (last.ttft_ms or last.output)):
            return OK
        return {HUNG_UP: Cancelled.status, INTERRUPTED: Internal.status}.get(last.finish, UpstreamFailed.status)

    @property
    def error(self) -> str:
        """The code that the caller was told, or that their answer ended with; "" for a good one."""
        if self.entry is not None and self.entry.error:
            return self.entry.error
        if self.last:
            return self.last.error or ""
        return ""

    @property
    def codes(self) -> set[str]:
        """Every error code of it: the caller's and those of its attempts."""
        return {code for code in (self.error, *(one.error for one in self.attempts)) if code}

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
        """Whether the organization's own provider key paid."""
        return bool(self.last and self.last.mode == BYOK)

    @property
    def duration_ms(self) -> int:
        return sum(one.duration_ms for one in self.attempts)

    @property
    def cost_nusd(self) -> int:
        return sum(one.cost_nusd for one in self.attempts)

    @property
    def storage_nusd(self) -> int:
        return sum(one.storage_nusd or 0 for one in self.attempts)

    @property
    def discount_nusd(self) -> int:
        return sum(one.discount_nusd or 0 for one in self.attempts)

    @property
    def input_tokens(self) -> int:
        return sum(map(input_of, self.attempts))

    @property
    def output_tokens(self) -> int:
        return sum(map(output_of, self.attempts))


def input_of(record: UsageRecord) -> int:
    """All that an attempt read, in tokens of every kind, as activity counts them."""
    units = record.details.get("units", {})
    plain = record.input + record.cache_read + record.cache_write
    return plain + sum(units.get(name, 0) for name in UNITS["input_tokens"])


def output_of(record: UsageRecord) -> int:
    """All that an attempt wrote, in tokens of every kind."""
    units = record.details.get("units", {})
    return record.output + sum(units.get(name, 0) for name in UNITS["output_tokens"])


def read_requests(database: Database, requests: Sequence[bytes]) -> list[LoggedRequest]:
    """What is known of these requests, in their order; those of which nothing is known are left out. Inside a read."""
    if not requests:
        return []
    attempts = _attempts_of(database, requests)
    entries = entries_of(database, list(requests))
    payloads = payloads_of(database, list(requests))
    found = (LoggedRequest(one, tuple(attempts.get(one, ())), entries.get(one), payloads.get(one)) for one in requests)
    return [one for one in found if one.attempts or one.entry or one.payload]


def find_request(database: Database, request_id: str) -> LoggedRequest | None:
    """The request of an id (32 hex digits); None for an unknown one and one that is forgotten."""
    try:
        request = bytes.fromhex(request_id)
    except ValueError:
        return None
    found = database.read(lambda: read_requests(database, [request]))
    if found:
        return found[0]
    return None


def _attempts_of(database: Database, requests: Iterable[bytes]) -> dict[bytes, list[UsageRecord]]:
    wanted = list(requests)
    sql = (
        f"SELECT {COLUMNS} FROM usage WHERE request IN ({', '.join('?' * len(wanted))}) ORDER BY request, attempt, kind"
    )
    found: dict[bytes, list[UsageRecord]] = {}
    for row in database.execute(sql, wanted).fetchall():
        record = record_of_row(row)
        found.setdefault(record.request, []).append(record)
    return found
