"""An answer that is recorded together with its usage row."""

from collections.abc import Callable
from typing import Any

from gateway.billing.batch_reservation import NOT_ITS_WORKER
from gateway.billing.retained_payload import HeldEntry
from gateway.errors import Unavailable
from gateway.metering.usage_table import UsageRecord
from gateway.providers.protocol import Target
from gateway.store.journal import Row, Ticket

WAIT_S = 10.0


class RecordedAnswer:
    """Collects the answer of a request, in place of its payload.

    The settlement holds its usage row back until the answer is complete; then both are one entry of the journal, with
    the payload if the project retains payloads (`inner`). `write` returns the row of the result from status, answer and
    cost. `recorded`: the request has its result.
    """

    def __init__(
        self, is_claimed: Callable[[], bool], write: Callable[[int, bytes, int], Row], inner: Any = None
    ) -> None:
        self._is_claimed = is_claimed
        self._write = write
        self._inner = inner
        self._pieces: list[bytes] = []
        self._entry: HeldEntry | None = None
        self._rows: tuple[Row, ...] = ()
        self._ended = False
        self.recorded = False
        self.record: UsageRecord | None = None
        self.ticket: Ticket | None = None

    @property
    def fee_nusd(self) -> int:
        return self._inner.fee_nusd if self._inner is not None else 0

    @property
    def stored(self) -> bool:
        return self._inner is not None

    @property
    def held(self) -> bool:
        return self._entry is not None

    @property
    def sent(self) -> bytes:
        return self._inner.sent if self._inner is not None else b""

    @property
    def answer(self) -> bytes:
        return b"".join(self._pieces)

    def note_request(self, model: str, streamed: bool) -> None:
        if self._inner is not None:
            self._inner.note_request(model, streamed)

    def capture_call(self, target: Target) -> Any:
        return self._inner.capture_call(target) if self._inner is not None else None

    def forget(self) -> None:
        if self._inner is not None:
            self._inner.forget()

    def send_instead(self, sent: bytes) -> None:
        if self._inner is not None:
            self._inner.send_instead(sent)

    def open(self) -> None:
        if self._inner is not None:
            self._inner.open()

    def hold(self, entry: HeldEntry) -> Ticket | None:
        """Hold the usage row until the answer is complete."""
        self._entry = entry
        if self._inner is not None:
            self._inner.hold(HeldEntry(entry.record, entry.fee_nusd, entry.awaited, self._post_payload))
        return None

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        if self._inner is not None:
            self._inner.add(piece)

    def finish(self, status: int) -> None:
        """End the answer and wait until its result is durable. Unavailable."""
        ticket = self.end(status)
        if ticket is not None:
            ticket.wait(WAIT_S)

    def end(self, status: int) -> Ticket | None:
        """End the answer. Nothing is recorded for a request that no provider answered."""
        if self._ended:
            return None
        self._ended = True
        entry = self._entry
        if entry is None:
            return None
        if not self._is_claimed():
            raise Unavailable(NOT_ITS_WORKER)
        self._rows = (self._write(status, self.answer, entry.record.cost_nusd),)
        self.record = entry.record
        self.recorded = True
        self.ticket = self._inner.end(status) if self._inner is not None else entry.post(None, self._rows)
        return self.ticket

    def _post_payload(self, row: Row | None) -> Ticket:
        if self._entry is None:
            raise Unavailable("The usage row of an answer was lost.")
        return self._entry.post(row, self._rows)
