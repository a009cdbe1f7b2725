"""Responses that a provider makes in its own background mode: the interface of such an API, and a stream that survives
the loss of its connection.

The stream is created with the response, so that it can be read again from any event. Its bytes are those of an
ordinary stream, for whoever reads it.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn, overload
from typing import Protocol as Interface

from msgspec import Struct

from gateway.clock import Clock
from gateway.errors import GatewayError, NotSupported, UpstreamFailed
from gateway.neutral.usage import Usage
from gateway.providers.protocol import Call, Target, UpstreamReply, WireFormat
from gateway.providers.upstream import Upstreams
from gateway.providers.upstream_calls import Opener, PendingCall, signed_in, signed_in_again
from gateway.runtime.threads import compute_if, pause

CALL_TIMEOUT_S = 60.0
END_TIMEOUT_S = 20.0  # of a call that ends a response, below the time for which a silent worker keeps it
STREAM_S = 3600.0  # of one connection
FIRST_WAIT_S, MAX_WAIT_S = 1.0, 60.0  # between connections
MAX_TROUBLE_S = 2 * 3600.0  # without any event, until a response counts as lost
LOOK_S = 0.25
MAX_EVENT_BYTES = 64 << 20
LARGE = 1 << 16
END = b"\n\n"
HEARTBEAT = b""
PASSING = (401, 408, 409, 425, 429)
REFUSALS = (400, 404, 405, 422, 501)  # of a server or a model without this mode: the call is sent as it was
LOST = "The provider does not know this response any more."
SILENT = "The provider could not be reached for too long."

log = logging.getLogger("gateway")


class BackgroundEvent(Struct, frozen=True):
    """What is read of an event: its number, the id of the response ("" where the event has none), and whether it is the
    last one."""

    number: int
    ident: str = ""
    is_last: bool = False


class BackgroundApi(Interface):
    """A provider's API for responses in the background."""

    def begin(self, call: Call) -> Call | None:
        """Return the call that creates the response of a streamed call in the background; None for another call."""
        ...

    def read(self, frame: bytes) -> BackgroundEvent | None:
        """Read a frame of a stream; None for one without an event. UpstreamFailed."""
        ...

    def read_usage(self, body: bytes) -> Usage | None:
        """Return what a response used, by its object; None where that does not say."""
        ...

    def follow(self, ident: str, after: int, target: Target) -> Call:
        """Return the call that streams the events after a number (-1: all)."""
        ...

    def show(self, ident: str, target: Target) -> Call: ...

    def cancel(self, ident: str, target: Target) -> Call: ...

    def delete(self, ident: str, target: Target) -> Call: ...


class BackgroundTerms(NamedTuple):
    """How a response is made. `ident` is its id at the provider, "" for a new one; `begun` is called with the id and
    the target once the provider has it, and `may_cancel` when its stream is closed early."""

    ident: str
    begun: Callable[[str, Target], None]
    may_cancel: Callable[[], bool]


class BackgroundCalls:
    """Calls about responses in the background. All raise the errors of the transport and of the protocol's
    `failure`."""

    def __init__(self, upstreams: Upstreams, apis: dict[str, BackgroundApi]) -> None:
        self._upstreams = upstreams
        self._apis = apis

    def api_of(self, target: Target) -> BackgroundApi | None:
        """Return the target's API for responses in the background; None where it has none."""
        return self._apis.get(target.provider.background_api)

    def through(self, upstreams: Upstreams, target: Target, operation: str, terms: BackgroundTerms) -> Target:
        """Return a copy of the target that makes streamed responses in the background. NotSupported, IdentityFailed."""
        api = self.api_of(target)
        if api is None:
            return target
        wire, inner = self._upstreams.carrier(target)
        opener: Any = BackgroundOpener(api, wire, inner, terms)
        return upstreams.through(opener, target, operation)

    def exists(self, ident: str, target: Target) -> bool:
        """Return whether the provider still has a response."""
        api = self.api_of(target)
        if api is None:
            return False
        wire, opener = self._upstreams.carrier(target)
        target = signed_in(target)
        reply = opener.send(api.show(ident, target), target, Clock.monotonic() + CALL_TIMEOUT_S).wait()
        try:
            if reply.status == 404:
                return False
            _check(wire, reply, target)
            return True
        finally:
            reply.close()

    def cancel(self, ident: str, target: Target) -> Usage | None:
        """Cancel a response and return what it used; None where the provider does not say. Never raises."""
        api = self.api_of(target)
        body = b"" if api is None else self._end(api.cancel, ident, target)
        return api.read_usage(body) if api is not None and body else None

    def delete(self, ident: str, target: Target) -> None:
        """Delete a response after its end. Never raises: what is left expires at the provider."""
        api = self.api_of(target)
        if api is not None:
            self._end(api.delete, ident, target)

    def _end(self, write: Callable[[str, Target], Call], ident: str, target: Target) -> bytes:
        """Return the body of the answer to a call; without one where it failed."""
        try:
            _, opener = self._upstreams.carrier(target)
            target = signed_in(target)
            reply = opener.send(write(ident, target), target, Clock.monotonic() + END_TIMEOUT_S).wait()
            try:
                return reply.read_all() if 200 <= reply.status < 300 else b""
            finally:
                reply.close()
        except GatewayError as error:
            log.warning("a response remains at %s: %s", target.provider.id, error.message)
            return b""


class BackgroundOpener:
    """Sends the calls of one response."""

    def __init__(self, api: BackgroundApi, wire: WireFormat, inner: Opener, terms: BackgroundTerms) -> None:
        self.api = api
        self.wire = wire
        self.inner = inner
        self.terms = terms

    def send(self, call: Call, target: Target, deadline: float) -> Any:
        """Send a call, in the background if it is one for a response."""
        if self.terms.ident:
            return BackgroundPending(self, None, target)
        begun = self.api.begin(call)
        if begun is None:
            return self.inner.send(call, target, deadline)
        pending = self.inner.send(begun, target, Clock.monotonic() + STREAM_S)
        return BackgroundPending(self, pending, target, lambda: self.inner.send(call, target, deadline))

    def connect(self, call: Call, target: Target, deadline: float) -> NoReturn:
        """Raise NotSupported."""
        raise NotSupported("A session is no response.")

    def follow(self, ident: str, after: int, target: Target) -> UpstreamReply:
        """Return the stream of the events after a number. UpstreamFailed with the code `response_lost` where the
        provider does not know the response."""
        target = signed_in(target)  # a response can last longer than a token
        call = self.api.follow(ident, after, target)
        reply = self.inner.send(call, target, Clock.monotonic() + STREAM_S).wait()
        if reply.status == 401:
            signed_in_again(target, reply)  # the next call has another token
        if reply.status == 404:
            reply.close()
            raise UpstreamFailed(LOST, code="response_lost", upstream_status=404)
        try:
            _check(self.wire, reply, target)
        except BaseException:
            reply.close()
            raise
        return reply


class BackgroundPending:
    """The call of a response that was sent; without one, the stream of a response that exists. `send_plain` sends the
    call without the background mode."""

    def __init__(
        self,
        opener: BackgroundOpener,
        pending: PendingCall | None,
        target: Target,
        send_plain: Callable[[], PendingCall] | None = None,
    ) -> None:
        self._opener = opener
        self._pending = pending
        self._target = target
        self._send_plain = send_plain
        self._is_plain = False

    @overload
    def wait(self, seconds: None = None) -> UpstreamReply: ...
    @overload
    def wait(self, seconds: float) -> UpstreamReply | None: ...
    def wait(self, seconds: float | None = None) -> UpstreamReply | None:
        if self._pending is None:
            return BackgroundReply(self._opener, None, self._target)
        reply = self._pending.wait() if seconds is None else self._pending.wait(seconds)
        if reply is not None and reply.status in REFUSALS and self._send_plain is not None:
            reply.close()
            self._pending = self._send_plain()
            self._send_plain = None
            self._is_plain = True
            reply = self._pending.wait() if seconds is None else self._pending.wait(seconds)
        if reply is None or self._is_plain or not 200 <= reply.status < 300:
            return reply
        return BackgroundReply(self._opener, reply, self._target)

    def close(self) -> None:
        if self._pending is not None:
            self._pending.close()


class BackgroundReply:
    """The stream of a response. It connects again where it breaks, and gives whole events, each once."""

    status = 200

    def __init__(self, opener: BackgroundOpener, reply: UpstreamReply | None, target: Target) -> None:
        self._opener = opener
        self._reply = reply
        self._target = target
        self._ident = opener.terms.ident
        self._number = -1
        self._ended = False
        self._closed = False
        self.headers = dict(reply.headers) if reply is not None else {"content-type": "text/event-stream"}

    def read_all(self) -> bytes:
        return b"".join(self.chunks())

    def chunks(self) -> Iterator[bytes]:
        wait_s = 0.0
        last_event = Clock.monotonic()
        while not self._closed:
            before = self._number
            failure: GatewayError | None = None
            try:
                if self._reply is None:
                    self._reply = self._opener.follow(self._ident, self._number, self._target)
                yield from self._read(self._reply)
            except GatewayError as error:
                failure = error
            finally:
                self._drop()
            if self._ended:
                return
            if self._number > before:
                wait_s = 0.0
                last_event = Clock.monotonic()
            if not self._ident or (failure is not None and not _passes(failure)):
                if failure is not None:
                    raise failure
                return
            if Clock.monotonic() - last_event > MAX_TROUBLE_S:
                raise UpstreamFailed(SILENT, code="response_lost")
            yield from self._pause(wait_s)
            wait_s = min(max(FIRST_WAIT_S, wait_s * 2), MAX_WAIT_S)

    def close(self) -> None:
        """Close the stream; the response is cancelled unless it has ended or another worker continues it."""
        if self._closed:
            return
        self._closed = True
        self._drop()
        if self._ident and not self._ended and self._opener.terms.may_cancel():
            try:
                target = signed_in(self._target)
                call = self._opener.api.cancel(self._ident, target)
                self._opener.inner.send(call, target, Clock.monotonic() + END_TIMEOUT_S).wait().close()
            except GatewayError as error:
                log.warning("a response could not be cancelled at %s: %s", self._target.provider.id, error.message)

    def _read(self, reply: UpstreamReply) -> Iterator[bytes]:
        """Yield the events of one connection."""
        buffer = bytearray()
        for piece in reply.chunks():
            if not piece:
                yield HEARTBEAT
                continue
            begin = max(0, len(buffer) - 1)
            buffer += piece
            end = buffer.rfind(END, begin)
            if end < 0:
                if len(buffer) > MAX_EVENT_BYTES:
                    raise UpstreamFailed("The provider's event is too large.", code="response_too_large")
                continue
            frames = bytes(buffer[: end + 2])
            del buffer[: end + 2]
            wanted = b"".join(frame + END for frame in frames.split(END)[:-1] if self._note(frame))
            if wanted:
                yield wanted
            if self._ended:
                return

    def _note(self, frame: bytes) -> bool:
        """Note an event; False for one that was given before."""
        event = compute_if(len(frame) > LARGE, self._opener.api.read, frame)
        if event is None:
            return True
        if 0 <= event.number <= self._number:
            return False
        self._number = max(self._number, event.number)
        self._ended = self._ended or event.is_last
        if event.ident and not self._ident:
            self._ident = event.ident
            self._opener.terms.begun(event.ident, self._target)
        return True

    def _pause(self, seconds: float) -> Iterator[bytes]:
        end = Clock.monotonic() + seconds
        while not self._closed and (left := end - Clock.monotonic()) > 0:
            pause(min(left, LOOK_S))
            yield HEARTBEAT

    def _drop(self) -> None:
        if self._reply is not None:
            self._reply.close()
            self._reply = None


def _passes(error: GatewayError) -> bool:
    """Return whether an error may pass: the connection broke, or the provider cannot answer for the moment."""
    status = error.upstream_status
    return status in PASSING or status >= 500 or not status or status == 200


def _check(wire: WireFormat, reply: UpstreamReply, target: Target) -> None:
    if not 200 <= reply.status < 300:
        error = wire.failure(reply, target)
        error.upstream_status = reply.status
        raise error
