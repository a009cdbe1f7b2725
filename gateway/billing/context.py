"""The context of a request: caller, time, headers and options; everything but its body."""

from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

from gateway.accounts.authentication import Caller
from gateway.neutral.request import Request
from gateway.providers.protocol import Target

if TYPE_CHECKING:
    from gateway.billing.outcome import Outcome


class PayloadCapture(Protocol):
    """The interface of a payload being recorded, where the project retains payloads (engine/payload_log)."""

    fee_nusd: int

    def note_request(self, model: str, streamed: bool) -> None: ...
    def capture_call(self, target: Target) -> Any: ...
    def forget(self) -> None: ...
    def admit(self, owner: Any, terms: Any, ask: Any, reservation: Any, slot: Any) -> Any: ...


class Trace(Protocol):
    """The trace that a request belongs to, where the operator collects traces (telemetry/otel)."""

    def listener(self, number: int, inner: Any) -> Any: ...


class RequestContext(Struct, eq=False):
    """One request of one caller.

    `request_id` is the accounting id: 32 hex digits, always minted here; `label` the caller's own x-request-id
    (at most 64 characters), echoed but never a key. `started` and `deadline` are monotonic seconds. `payload` is there
    when the project retains what it sends and gets. `request` is there once its body was read, `outcome` once it was
    admitted, `own_s` (what the gateway itself took, seconds) once it was answered.
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
        """The id that the caller sees: their own label, else ours."""
        return self.label or self.request_id
