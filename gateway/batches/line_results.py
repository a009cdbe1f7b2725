"""The answer of a line, recorded together with its usage row."""

from gateway.billing.recorded_answers import RecordedAnswer
from gateway.providers.protocol import Call, Target
from gateway.providers.upstream_calls import CallListener
from gateway.runtime.large_files import MessageBody
from gateway.runtime.loop_turns import low_priority_turn


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


class LineResult(RecordedAnswer):
    """The answer of a line. `recorded`: the line has its result."""

    def capture_call(self, target: Target) -> LineCall:
        return LineCall(super().capture_call(target))

    def add(self, piece: bytes) -> None:
        low_priority_turn()
        super().add(piece)
