"""A finished request, as every observer receives it."""

import re

from msgspec import Struct

from gateway.billing.context import Attempt, RequestContext
from gateway.callers.authentication import Caller
from gateway.errors import GatewayError

# The paths that load balancers and orchestrators request to check the gateway.

LIVENESS = ("/livez", "/healthz", "/health/liveliness")
READINESS = ("/readyz", "/health/readiness")
PROBE_PATHS = frozenset((*LIVENESS, *READINESS))


TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
NO_TRACE = "0" * 32
NO_SPAN = "0" * 16
UNMATCHED = "unmatched"  # the operation of a request that matches no operation


def parse_traceparent(header: str) -> re.Match[str] | None:
    """Return trace id, span id and flags of a `traceparent` header; None if it is invalid (W3C Trace Context)."""
    match = TRACEPARENT.fullmatch(header.strip())
    if match is None or match[1] == NO_TRACE or match[2] == NO_SPAN:
        return None
    return match


class FinishedRequest(Struct, frozen=True, eq=False):
    """`operation` is the operation's name in the table ("POST /v1/chat/completions"), `status` the HTTP status sent,
    `at_us` the time when it finished, `took_s` its duration, `peer` the caller's address according to trusted proxies,
    `shown_id` the request id that the caller saw.

    `error` is why it was refused or failed, or what interrupted its response; None on success.
    `caller` is None without authentication.
    `context` None: it never reached the engine. `replayed`: an earlier answer was returned again.
    `paid`: it asked a model for something, with `body`. `traceparent`: the header of that name.
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
    traceparent: str = ""

    @property
    def attempts(self) -> list[Attempt]:
        """The upstream calls in order; empty when the request was refused before any."""
        outcome = self.context.outcome if self.context is not None else None
        if outcome is not None:
            return outcome.attempts
        return []

    @property
    def trace_id(self) -> str | None:
        """The id of the caller's trace, None without one."""
        match = self.traceparent and parse_traceparent(self.traceparent)
        if match:
            return match[1]
        return None

    @property
    def refused(self) -> bool:
        """Whether the request failed before any upstream call."""
        return self.error is not None and not self.attempts
