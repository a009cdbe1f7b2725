"""One request at its end, as all who are told of requests get it."""

from msgspec import Struct

from gateway.accounts.authentication import Caller
from gateway.billing.context import RequestContext
from gateway.billing.outcome import Attempt
from gateway.errors import GatewayError

UNMATCHED = "unmatched"  # the operation of a request for which there is none


class FinishedRequest(Struct, frozen=True, eq=False):
    """`operation` is its line in the table of operations ("POST /v1/chat/completions"), `status` what was sent, `at_us`
    the moment of its end, `took_s` how long it took, `peer` the caller's address as trusted proxies tell it, `shown_id`
    the id that the caller saw.

    `error` is why it was refused or failed, or what ended its answer after that had begun; None when all was well.
    `caller` None: nobody was authenticated.
    `context` None: it never came to the engine's door. `replayed`: an earlier answer was given again.
    `paid`: it asked a model for something, with `body`.
    """

    operation: str
    status: int
    at_us: int
    took_s: float
    request_id: str
    shown_id: str
    peer: str = ""
    error: GatewayError | None = None
    caller: Caller | None = None
    context: RequestContext | None = None
    replayed: bool = False
    paid: bool = False
    body: bytes = b""

    @property
    def attempts(self) -> list[Attempt]:
        """Its upstream calls in their order; empty when it was refused before any."""
        outcome = self.context.outcome if self.context is not None else None
        return outcome.attempts if outcome is not None else []

    @property
    def refused(self) -> bool:
        """Whether it failed before any upstream call was made for it."""
        return self.error is not None and not self.attempts
