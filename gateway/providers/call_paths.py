"""How the calls of an operation are made at a target, and streamed answers in progress."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from msgspec import Struct

from gateway.clock import Clock
from gateway.neutral.events import Batch
from gateway.neutral.request import Request
from gateway.providers.openers import CallListener, Opener, PendingCall
from gateway.providers.protocol import Failure, StreamCodec, Target, UpstreamReply


class Answering:
    """A streamed answer in progress: its batches, and `close()`, which ends the upstream call. `head_at` is when the
    response began (monotonic seconds), 0.0 while nothing has arrived."""

    head_at: float = 0.0

    def __init__(self, pending: PendingCall) -> None:
        self.batches: Iterator[Batch] = iter(())
        self._open: PendingCall | UpstreamReply = pending

    def answered(self, reply: UpstreamReply) -> None:
        self._open = reply
        self.head_at = Clock.monotonic()

    def sent(self, pending: PendingCall) -> None:
        """Replace the call by its retry over another protocol."""
        self._open = pending

    def close(self) -> None:
        self._open.close()
        # The answer and its reader refer to each other. Without this the data would stay until the next garbage
        # collection.
        self.batches = iter(())


class RepeatedCall(NamedTuple):
    """The arguments that repeat a call."""

    request: Request
    target: Target
    deadline: float
    listener: CallListener | None


def mends(codec: StreamCodec) -> bool:
    """Return whether a codec applies the changes of the neutral form to a native body."""
    return bool(getattr(codec, "mends", False))


class CallPath(Struct):
    """How calls of one operation are made at one target. `tagged`: the text contains reasoning between tags.

    `check` raises for an answer without something that was requested (see OPERATIONS). `second` is for calls that need
    a feature that the first protocol lacks, or that arrived in the second protocol's dialect. Until `absent_until`
    (monotonic) the second is known to be missing at the target. For a reasoning model (`reasons`) the second protocol
    returns its reasoning encrypted. `tools_reason`: only the second protocol combines tool calls with reasoning.
    """

    codec: StreamCodec
    failure: Failure
    opener: Opener
    tagged: bool
    second: "CallPath | None" = None
    absent_until: float = 0.0
    reasons: bool = False
    tools_reason: bool = False
    check: Callable[[Any, Any], None] | None = None

    def needs_second(self, request: Request, second: "CallPath") -> bool:
        """Whether the request needs a feature that only the second protocol has."""
        needs = request.requirements
        return (needs.web_search and not needs.search_offered) or needs.vendor_only == second.codec.dialect

    def loses_by_first(self, request: Request, second: "CallPath") -> bool:
        """Whether the first protocol carries the request as well, but with fewer details."""
        native = request.native
        dialect = second.codec.dialect
        if native is not None and native.dialect == dialect and (not native.adapted or mends(second.codec)):
            return True
        needs = request.requirements
        if needs.hosted or needs.own_parts or needs.web_search:
            if self.codec.dialect in (needs.hosted, needs.own_parts):
                return False  # the second would lose parts and tools of the first
            if needs.web_search or dialect in (needs.hosted, needs.own_parts):
                return True
        if not self.reasons or needs.effort == "none":
            return False
        return needs.keeps_reasoning or (self.tools_reason and needs.tools)
