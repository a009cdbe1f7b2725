"""The answer of a line, recorded together with its usage row."""

from collections.abc import Callable

from gateway.billing.batch_reservation import NOT_ITS_WORKER
from gateway.billing.retained_payload import HeldEntry
from gateway.engine.payload_collection import Payload
from gateway.errors import Unavailable
from gateway.metering.usage_table import UsageRecord
from gateway.providers.protocol import Call, Target
from gateway.providers.upstream_calls import CallListener
from gateway.runtime.large_files import MessageBody
from gateway.runtime.loop_turns import low_priority_turn
from gateway.store.journal import Row, Ticket

WAIT_S = 10.0


class LineCall:
    """The call of a line: it waits for a turn before each step, so that requests of callers do not wait for the lines
    that are under way together. It passes all on to the listener of a retained payload."""

    def __init__(self, inner: CallListener | None) -> None:
        self._inner = inner

    def sending(self, call: Call) -> None:
        low_priority_turn()
        if self._inner is not None:
            self._inner.sending(call)

    def sent(self, method: str, url: str, body: bytes | MessageBody) -> None:
        if self._inner is not None:
            self._inner.sent(method, url, body)

    def answered(self, status: int) -> None:
        low_priority_turn()
        if self._inner is not None:
            self._inner.answered(status)

    def received(self, data: bytes) -> None:
        if self._inner is not None:
            self._inner.received(data)


class LineResult:
    """Collects the answer of a line, in place of the payload of its request.

    The settlement holds its usage row back until the answer is complete; then both are one entry of the journal, with
    the payload if the project retains payloads (`inner`). `write` returns the row of the result from status, answer and
    cost. `recorded`: the line has its result.
    """

    def __init__(
        self, is_claimed: Callable[[], bool], write: Callable[[int, bytes, int], Row], inner: Payload | None = None
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

    def capture_call(self, target: Target) -> LineCall:
        return LineCall(self._inner.capture_call(target) if self._inner is not None else None)

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
        low_priority_turn()
        self._pieces.append(piece)
        if self._inner is not None:
            self._inner.add(piece)

    def finish(self, status: int) -> None:
        """End the answer and wait until its result is durable. Unavailable."""
        ticket = self.end(status)
        if ticket is not None:
            ticket.wait(WAIT_S)

    def end(self, status: int) -> Ticket | None:
        """End the answer. Nothing is recorded for a request that no provider answered: it may be sent again."""
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
        if self._inner is not None:
            return self._inner.end(status)
        return entry.post(None, self._rows)

    def _post_payload(self, row: Row | None) -> Ticket:
        if self._entry is None:
            raise Unavailable("The usage row of a line was lost.")
        return self._entry.post(row, self._rows)
