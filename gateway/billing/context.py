"""What the engine knows of a request beside its body."""

from typing import Any, Protocol

from msgspec import Struct, field

from gateway.accounts.authentication import Caller
from gateway.providers.protocol import Target


class PayloadCapture(Protocol):
    """The interface of a payload being recorded, where the project retains payloads (engine/payload_log)."""

    fee_nusd: int

    def asks(self, model: str, streamed: bool) -> None: ...
    def tap(self, target: Target) -> Any: ...
    def forget(self) -> None: ...
    def admit(self, owner: Any, terms: Any, ask: Any, reservation: Any, slot: Any) -> Any: ...


class RequestContext(Struct, eq=False):
    """One request of one caller.

    `request_id` is the accounting id: 32 hex digits, always minted here; `label` the caller's own x-request-id
    (at most 64 characters), echoed but never a key. `started` and `deadline` are monotonic seconds. `payload` is there
    when the project retains what it sends and gets.
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

    @property
    def shown_id(self) -> str:
        """The id that the caller sees: their own label, else ours."""
        return self.label or self.request_id
