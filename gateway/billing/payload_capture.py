"""How a settlement and the recording of its request's payload meet: one entry of the journal has both."""

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from gateway.metering.usage_table import UsageRecord
from gateway.providers.protocol import Target
from gateway.store.journal import Row, Ticket


class HeldEntry(Struct, frozen=True, eq=False):
    """The entry of a serving attempt that waits for the row of its payload. `awaited`: the end of the answer waits
    for it.

    `post` appends usage, spending, fee and the payload's row as one entry. Without a row the payload could not be
    stored, so no fee is charged. Unavailable.
    """

    record: UsageRecord
    fee_nusd: int
    awaited: bool
    post: Callable[[Row | None], Ticket]

    @property
    def served(self) -> str:
        """The provider and model that served the request."""
        return f"{self.record.provider}/{self.record.served}"


class PayloadCapture(Protocol):
    """Interface of a payload recording, for projects that retain payloads (engine/payload_collection.py)."""

    fee_nusd: int

    def note_request(self, model: str, streamed: bool) -> None: ...
    def capture_call(self, target: Target) -> Any: ...
    def forget(self) -> None: ...
    def open(self) -> None: ...
    def hold(self, entry: HeldEntry) -> Ticket | None: ...
    def close(self) -> None: ...
