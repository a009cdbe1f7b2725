"""The context of a request: caller, time, headers and options; everything but its body."""

from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

from gateway.accounts.authentication import Caller
from gateway.neutral.request import Request
from gateway.providers.protocol import Target

if TYPE_CHECKING:
    from gateway.billing.outcome import Outcome


class PayloadCapture(Protocol):
    """Interface of a payload recording, for projects that retain payloads (implemented in engine/payload_log)."""

    fee_nusd: int

    def note_request(self, model: str, streamed: bool) -> None: ...
    def capture_call(self, target: Target) -> Any: ...
    def forget(self) -> None: ...
    def admit(self, owner: Any, terms: Any, cost_bound: Any, reservation: Any, slot: Any) -> Any: ...


class Trace(Protocol):
    """Interface of the trace that a request belongs to, for operators that collect traces (telemetry/otel)."""

    def listener(self, number: int, inner: Any) -> Any: ...


class RequestContext(Struct, eq=False):
    """One request of a caller.

    `request_id` is the accounting id: 32 hex digits that the gateway generates. `label` is the caller's x-request-id
    (at most 64 characters); it is echoed but never used as a key. `started` and `deadline` are monotonic seconds.
    `payload` is set when the project retains payloads, `request` once the body was parsed, `outcome` once the request
    was admitted, and `own_s` (seconds that the gateway itself took) once it was answered.
    """

    request_id: str
    caller: Caller
    at_us: int
    started: float
    deadline: float
    label: str = ""
    source: str = ""
    session: str = ""
    ip: str = ""
    operation: str = "chat"
    surface: str = "openai"
    no_fallback: bool = False
    no_cache: bool = False
    debug: bool = False
    metadata: dict[str, str] = field(default_factory=dict)
    idempotency_key: str = ""
    payload: PayloadCapture | None = None
    trace: Trace | None = None
    request: Request | None = None
    outcome: "Outcome | None" = None
    own_s: float = 0.0

    @property
    def shown_id(self) -> str:
        """The id that the caller sees: the caller's label if there is one, otherwise `request_id`."""
        return self.label or self.request_id
