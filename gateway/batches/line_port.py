"""The interface from batches to the surfaces: reads lines as requests, writes batches and results in a dialect."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from gateway.batches.batch_table import BatchJob, BatchTask
from gateway.batches.input_lines import InputLine
from gateway.billing.batch_reservation import CollectedLine, SentLine
from gateway.callers.authentication import Caller
from gateway.errors import GatewayError
from gateway.limits.cost_bound import Payer
from gateway.providers.protocol import Call, Target
from gateway.store.journal import Row


class LineBound(Struct, frozen=True):
    """A checked line: its payer, the most that it can cost, and its model."""

    payer: Payer
    bound_nusd: int
    model: str


class LineAnswer(Struct, frozen=True):
    """The answer to a line. `recorded`: its result is written, with its usage row; `cost_nusd` is its cost.
    `retry_after_s`: when it may be sent again, 0 if that is unknown."""

    status: int
    body: bytes
    recorded: bool
    cost_nusd: int = 0
    retry_after_s: float = 0.0


class WrittenLine(Struct, frozen=True):
    """A line as a call for the batch API of a target, and the operation of its request."""

    call: Call
    target: Target
    operation: str


class LineSending(Struct, frozen=True):
    """The sending of one line: its reservation, whether this worker still has the batch, and `write`, which returns the
    row of the result from status, answer and cost."""

    request_id: str
    reservation: SentLine
    is_claimed: Callable[[], bool]
    write: Callable[[int, bytes, int], Row]


class LineError(NamedTuple):
    """The error of a line: its number from 1 and its caller's id (None and "" where they are unknown), its HTTP status,
    0 for a line that was not sent, and the code and message of the error."""

    line: int | None
    custom_id: str
    status: int
    code: str
    message: str


class LinePort(Protocol):
    """The surfaces, as batches see them."""

    def measure(self, job: BatchJob, task: BatchTask, line: InputLine, caller: Caller | None = None) -> LineBound:
        """Check a line like any request and return its bound; nothing is sent or held. `caller`: who would send it,
        None for the key of the batch. Raises its errors."""

    def send(self, job: BatchJob, task: BatchTask, line: InputLine, sending: LineSending) -> LineAnswer:
        """Send a line as a request. Never raises GatewayError."""

    def collect(self, job: BatchJob, task: BatchTask, line: InputLine, sent: CollectedLine) -> WrittenLine | None:
        """Write a line for the batch API of its target; None where it must be sent as a request. Raises its errors."""

    def deliver(self, job: BatchJob, task: BatchTask, line: InputLine, sending: LineSending) -> LineAnswer:
        """Read the result of a line that a provider's batch has served (the DeliveredLine of `sending`), as `send`
        reads a response."""

    def write_error(self, line: InputLine, error: GatewayError) -> tuple[int, bytes]:
        """Return status and body of an error in the dialect of a line."""

    def write_result(
        self, task: BatchTask, line: InputLine, request_id: str, status: int, answer: bytes, reason: str
    ) -> bytes:
        """Return the line of a result in the files. `reason`: why the line was not sent ("expired", "cancelled"), ""
        for an answered line."""

    def read_error(self, task: BatchTask, text: bytes) -> LineError | None:
        """Return the error in a line that `write_result` wrote; None for the result of a line that succeeded."""

    def show(self, job: BatchJob, task: BatchTask) -> Any:
        """Return a batch as its callers see it."""
