"""Retention of payloads: which projects retain them, and how they are packed, stored, read and deleted."""

import logging
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import orjson

from gateway.billing.context import RequestContext
from gateway.callers.access import logs_text
from gateway.callers.authentication import Caller
from gateway.callers.vault import Vault
from gateway.clock import Clock
from gateway.engine.payload_collection import HEAD_BYTES, MAX_BODY_BYTES, Payload
from gateway.errors import NotFound
from gateway.metering import payload_table
from gateway.metering.payload_table import LogInfo
from gateway.runtime.allowances import Allowances
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.runtime.threads import Threads
from gateway.store.database import Database
from gateway.store.journal import Journal, Row, Ticket

RETAIN = "retain"
# Bytes of packed payloads that may be queued for the database. Beyond it requests are settled without their payloads,
# to bound memory.
MAX_WAITING_BYTES = 64 << 20
# Payloads that neither a fee nor a cost pays for, of an organization and of all, in one worker: a burst, then a rate
# per second. Bytes of requests that were admitted and failed, or whose provider reports no tokens; and requests of
# which only the beginning is stored, as of all that are refused.
FREE_BYTES = (64 << 20, 16 << 10, 256 << 20, 64 << 10)
FREE_HEADS = (100, 0.1, 1000, 1.0)

log = logging.getLogger("gateway")


class PayloadBodies(NamedTuple):
    """A payload as sent and answered; `raw`: the exchanges with providers, [] unless the caller requested x-debug."""

    sent: bytes
    answer: bytes
    raw: list[dict[str, Any]]


class AppendAuditEntry(Protocol):
    """Adds an entry to the audit trail within the open transaction (`accounts/audit.py`)."""

    def __call__(
        self,
        action: str,
        subject: str,
        *,
        actor: str,
        at_us: int,
        organization_id: str,
        detail: Mapping[str, object],
    ) -> None: ...


def retains(caller: Caller) -> bool:
    """Return whether the project retains payloads and no policy of its organization forbids it."""
    return caller.retention == RETAIN and logs_text(caller.rules)


class Retention:
    """Stores, reads and deletes payloads, always encrypted."""

    def __init__(
        self,
        database: Database,
        journal: Journal,
        vault: Vault,
        threads: Threads,
        wait_s: float,
        clock: Clock,
        max_waiting: int = MAX_WAITING_BYTES,
    ) -> None:
        self._database = database
        self._journal = journal
        self._vault = vault
        self._threads = threads
        self.wait_s = wait_s
        self._max_waiting = max_waiting
        self._waiting: deque[tuple[Ticket, int]] = deque()
        self._waiting_bytes = 0
        self._free_bytes = Allowances(*FREE_BYTES, clock.monotonic)
        self._free_heads = Allowances(*FREE_HEADS, clock.monotonic)

    def begin(self, context: RequestContext, path: str, sent: bytes) -> Payload | None:
        """Return the payload of an admitted request, None where nothing may be stored."""
        if retains(context.caller):
            return Payload(self, context, path, sent)
        return None

    def pack(self, payload: Payload, native: bool) -> Row | None:
        """Return the row of a payload, packed in a thread if `native`; None when too much is queued already."""
        row = self._threads.run(payload.write, self._vault) if native else payload.write(self._vault)
        if self._count_waiting() + row.size > self._max_waiting:
            log.warning("a payload was not stored: too many payloads are queued for the database")
            return None
        return payload_table.write_row(row)

    def append(self, row: Row) -> Ticket:
        """Queue a payload that has no settlement."""
        return self._journal.append(row)

    def room_for_free(self, organization_id: str, size: int, whole: bool) -> int:
        """Return the bytes of each body that may be stored of a payload that pays nothing; 0: it is not stored.

        `whole`: its request was admitted, so that all of it is stored as long as its organization has room.
        """
        if whole and self._free_bytes.take(organization_id, size):
            return MAX_BODY_BYTES
        return HEAD_BYTES if self._free_heads.take(organization_id) else 0

    def posted(self, ticket: Ticket, row: Row) -> None:
        """Count a packed payload until it is written."""
        size = payload_table.PayloadRow(*row[1]).size
        self._waiting.append((ticket, size))
        self._waiting_bytes += size

    def find(self, request_id: str) -> LogInfo | None:
        """Return the log of a request by its id (32 hex digits), None when it is unknown or deleted."""
        return payload_table.find_log(self._database, request_id)

    def read(self, info: LogInfo) -> PayloadBodies:
        """Return the stored payload. NotFound when it has been deleted; Unavailable when it cannot be read."""
        packed = payload_table.read_packed(self._database, info.request)
        if packed is None:
            raise NotFound(f"There is no log {info.request_id}.")
        sent, answer, raw = [self._unpack(body) for body in packed]
        return PayloadBodies(sent, answer, orjson.loads(raw) if raw else [])

    def _unpack(self, body: bytes | None) -> bytes:
        if body is None:
            return b""
        return self._threads.run(payload_table.unpack, self._vault, body)

    def delete(self, info: LogInfo, append_audit_entry: AppendAuditEntry, *, actor: str) -> None:
        """Delete a payload now; its usage rows and its fee stay. NotFound when it is already deleted."""
        organization_id = f"org_{info.organization.hex()}"
        project_id = f"proj_{info.project.hex()}"

        def work() -> None:
            if not payload_table.delete_log(self._database, info.request):
                raise NotFound(f"There is no log {info.request_id}.")
            append_audit_entry(
                "request_log.delete",
                info.request_id,
                actor=actor,
                at_us=self._database.now_us(),
                organization_id=organization_id,
                detail={"project": project_id},
            )

        self._database.write(work)

    def purge(self, should_continue: ShouldContinue = always) -> int:
        """Delete expired payloads and return how many. Unavailable: the next round deletes them."""
        return payload_table.purge(self._database, should_continue)

    def _count_waiting(self) -> int:
        waiting = self._waiting
        while waiting and waiting[0][0].settled():
            self._waiting_bytes -= waiting.popleft()[1]
        return self._waiting_bytes
