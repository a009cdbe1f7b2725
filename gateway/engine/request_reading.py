"""The surfaces, as pages see them that read or send a logged request again."""

from typing import Any, Protocol

from msgspec import Struct

from gateway.callers.authentication import Caller
from gateway.errors import GatewayError
from gateway.neutral.request import Request


class ResentRequest(Struct, frozen=True):
    """A request as it is sent again: `headers` are those besides the key, `body` is its JSON value."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class ReadRequest(Struct, frozen=True):
    """A request that was read again: its neutral form, the most that it can cost (None where that is not known), and
    the error that would refuse it."""

    request: Request | None
    bound_nusd: int | None
    error: GatewayError | None


class RequestPort(Protocol):
    """Reads requests by the operation of their path."""

    def can_resend(self, path: str) -> bool:
        """Return whether requests at a path can be sent again: they call a model, and make no job."""

    def retarget(self, path: str, body: dict[str, Any], model: str) -> ResentRequest:
        """Return a request with another model, answered in one piece. `path` can be sent again."""

    def read(self, caller: Caller, resent: ResentRequest, base_url: str, address: str) -> ReadRequest:
        """Read a request as if `caller` sent it, up to its reservation; nothing is sent or held. Unavailable."""
