"""Upstream calls: how those of an operation are made at a target, their senders (over the network, or to a server
inside this process), listeners, and a codec's work on large bodies, off the event loop."""

from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any, NamedTuple, overload
from typing import Protocol as Interface

from msgspec import Struct

from gateway.clock import Clock
from gateway.errors import UpstreamFailed
from gateway.neutral.events import Batch, Heartbeat
from gateway.neutral.json_weight import is_large
from gateway.neutral.parameters import MAX_CHOICES
from gateway.neutral.parts import text_length
from gateway.neutral.realtime import RealtimeRequest, ServerEvent
from gateway.neutral.request import Native, Request
from gateway.providers.answer_checks import UNKNOWN_SHAPE, check_parts
from gateway.providers.protocol import (
    AnswerReader,
    Call,
    Codec,
    Failure,
    StreamCodec,
    Target,
    UpstreamReply,
    WireFormat,
)
from gateway.runtime.large_files import MessageBody
from gateway.runtime.threads import Job, compute
from gateway.transport import Transport


class PendingCall(Interface):
    """A call that was sent. `wait` returns the reply, or None after `seconds`, and may be called again."""

    @overload
    def wait(self, seconds: None = None) -> UpstreamReply: ...
    @overload
    def wait(self, seconds: float) -> UpstreamReply | None: ...
    def close(self) -> None: ...


class SessionLink(Interface):
    """An open session with an upstream that exchanges text messages in both directions.

    `receive` returns None when the session is closed; `code` and `reason` (RFC 6455) are then set. `send` and `ping`
    raise SocketClosed. `received_count` counts received frames, including pongs. `close` sends a close frame, `abort`
    drops the connection.
    """

    code: int
    reason: str
    closed: bool
    received_count: int

    def receive(self) -> str | None: ...
    def send(self, text: str) -> None: ...
    def ping(self) -> None: ...
    def close(self, number: int = 1000, reason: str = "") -> None: ...
    def abort(self) -> None: ...


class UpstreamSession(Interface):
    """An open session. Its events have the format of OpenAI's Realtime API, regardless of the upstream's format. The
    members are those of a SessionLink; `receive` also raises GatewayError for a session that cannot continue."""

    @property
    def code(self) -> int: ...
    @property
    def reason(self) -> str: ...
    @property
    def received_count(self) -> int: ...
    def receive(self) -> ServerEvent | None: ...
    def send(self, text: str) -> None: ...
    def ping(self) -> None: ...
    def close(self, number: int = 1000, reason: str = "") -> None: ...
    def abort(self) -> None: ...


# Opens a link to the session's target within the given seconds. HandshakeRefused; errors of the transport.
Dial = Callable[[Call, float], SessionLink]


class SessionCodec(Codec, Interface):
    """A codec of realtime sessions, `codecs["realtime"]` of a WireFormat. `transcribes`: the session's model
    transcribes the input audio itself, within its own token usage, and no separate transcription model is used."""

    transcribes: bool

    def open(self, request: RealtimeRequest, target: Target, dial: Dial, seconds: float) -> UpstreamSession:
        """Return a session that is ready for events. HandshakeRefused with the upstream's response; NotSupported;
        errors of the transport."""
        ...


class Opener(Interface):
    """Sends calls over the network, or to a server inside this process. `deadline` is monotonic seconds. `connect`
    opens a session, or raises HandshakeRefused with the upstream's response."""

    def send(self, call: Call, target: Target, deadline: float) -> PendingCall: ...
    def connect(self, call: Call, target: Target, deadline: float) -> SessionLink: ...


class CallListener(Interface):
    """Observes one call; `sending` may still change it, `received` gets the body as it is read."""

    def sending(self, call: Call) -> None: ...
    def sent(self, method: str, url: str, body: bytes | MessageBody) -> None: ...
    def answered(self, status: int) -> None: ...
    def received(self, data: bytes) -> None: ...


class CapturedPending:
    """A pending call that is observed by a listener."""

    def __init__(self, pending: PendingCall, listener: CallListener) -> None:
        self._pending = pending
        self._listener = listener

    @overload
    def wait(self, seconds: None = None) -> "CapturedReply": ...
    @overload
    def wait(self, seconds: float) -> "CapturedReply | None": ...
    def wait(self, seconds: float | None = None) -> "CapturedReply | None":
        reply = self._pending.wait(seconds)
        if reply is None:
            return None
        return CapturedReply(reply, self._listener)

    def close(self) -> None:
        self._pending.close()


class CapturedReply:
    """A reply that also passes its body to a listener."""

    def __init__(self, reply: UpstreamReply, listener: CallListener) -> None:
        self._reply = reply
        self._listener = listener
        self.status = reply.status
        self.headers = reply.headers
        listener.answered(reply.status)

    def read_all(self) -> bytes:
        body = self._reply.read_all()
        self._listener.received(body)
        return body

    def chunks(self) -> Iterator[bytes]:
        for chunk in self._reply.chunks():
            self._listener.received(chunk)
            yield chunk

    def close(self) -> None:
        self._reply.close()


class Network:
    """Sends calls over the transport. Addresses that the operator chose may be private."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def send(self, call: Call, target: Target, deadline: float) -> PendingCall:
        endpoint = call.endpoint
        head = None if endpoint is None else endpoint.head
        if head is None:
            head = self._transport.prepare(call.method, call.url, call.headers, target.trusted)
            if endpoint is not None:
                endpoint.head = head
        pending = self._transport.transmit(head, call.body, call.stream, deadline)
        call.body = b""  # it was sent: the call lives as long as its answer
        return pending

    def connect(self, call: Call, target: Target, deadline: float) -> SessionLink:
        return self._transport.open_websocket(call.url, call.headers, deadline=deadline, trusted=target.trusted)


class LocalServer(Interface):
    """A server inside this process. `open` returns when the response headers are available, `connect` opens a
    session."""

    def open(self, call: Call, *, deadline: float, heartbeat_s: float) -> UpstreamReply: ...
    def connect(self, call: Call) -> SessionLink: ...


class Local:
    """Sends calls to a server inside this process, which may be as slow as a remote server. `make` returns the server
    and is called once, with the first call."""

    def __init__(self, make: Callable[[], LocalServer], heartbeat_s: float) -> None:
        self._make = make
        self._making = Lock()
        self._server: LocalServer | None = None
        self._heartbeat_s = heartbeat_s

    def send(self, call: Call, target: Target, deadline: float) -> "LocalPending":
        return LocalPending(Job(self._open, call, deadline))

    def connect(self, call: Call, target: Target, deadline: float) -> SessionLink:
        return self._find_server().connect(call)

    def _open(self, call: Call, deadline: float) -> UpstreamReply:
        return self._find_server().open(call, deadline=deadline, heartbeat_s=self._heartbeat_s)

    def _find_server(self) -> LocalServer:
        with self._making:
            if self._server is None:
                self._server = self._make()
            return self._server


class LocalPending:
    def __init__(self, job: Job[UpstreamReply]) -> None:
        self._job = job

    @overload
    def wait(self, seconds: None = None) -> UpstreamReply: ...
    @overload
    def wait(self, seconds: float) -> UpstreamReply | None: ...
    def wait(self, seconds: float | None = None) -> UpstreamReply | None:
        try:
            return self._job.result(seconds)
        except TimeoutError:
            return None

    def close(self) -> None:
        self._job.stop()


# How the calls of an operation are made at a target, and streamed answers in progress.


PREPARING: Batch = [Heartbeat()]  # the batch of an answer whose request is not sent yet


class Preparation(Interface):
    """Work before a request is sent. `close` ends it."""

    def close(self) -> None: ...


class Answering:
    """A streamed answer in progress: its batches, and `close()`, which ends the upstream call. `head_at` is when the
    response began (monotonic seconds), 0.0 while nothing has arrived. `is_sent`: its request was sent; until then its
    files are uploaded, and its batches are PREPARING."""

    head_at: float = 0.0
    is_sent: bool = True

    def __init__(self, pending: "PendingCall | Preparation") -> None:
        self.batches: Iterator[Batch] = iter(())
        self._open: PendingCall | Preparation | UpstreamReply | Answering = pending

    def answered(self, reply: UpstreamReply) -> None:
        self._open = reply
        self.head_at = Clock.monotonic()

    def sent(self, pending: PendingCall) -> None:
        """Replace the call by its retry over another protocol."""
        self._open = pending

    def follow(self, other: "Answering") -> None:
        """Continue with another call, which repeats this one, or is the first that is sent."""
        self._open = other
        self.is_sent = True

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


def signed_in(target: Target) -> Target:
    """Return the target with a token, if its credential is a workload identity. IdentityFailed."""
    identity = target.credential.identity
    if identity is None:
        return target
    return identity.sign_in(target)


def succeeded(reply: UpstreamReply, wire: WireFormat, target: Target) -> UpstreamReply:
    """Return a reply with success; of another one raise the error, after a refused sign-in was renewed."""
    if 200 <= reply.status < 300:
        return reply
    try:
        signed_in_again(target, reply)  # the next call has another token
        error = wire.failure(reply, target)
        error.upstream_status = reply.status
        raise error
    finally:
        reply.close()


def signed_in_again(target: Target, reply: UpstreamReply) -> Target | None:
    """Return the target with another token after the provider rejected that of `target`; None without another one."""
    identity = target.credential.identity
    if identity is None:
        return None
    return identity.renew_rejected(target, reply)


# Runs a codec's work on large requests and answers in a thread, off the event loop.

MAX_PARTS = 5_000  # texts and tool calls in an answer


class BufferedReply(Struct):
    """A reply with a buffered body."""

    reply: UpstreamReply
    body: bytes

    @property
    def status(self) -> int:
        return self.reply.status

    @property
    def headers(self) -> dict[str, str]:
        return self.reply.headers

    def read_all(self) -> bytes:
        return self.body

    def chunks(self) -> Iterator[bytes]:
        yield self.body

    def close(self) -> None:
        self.reply.close()


def write_call(codec: Codec, request: Request, target: Target) -> Call:
    """Run the codec's `write`, in a thread for a large request."""
    if request.large and not codec.waits:
        return compute(codec.write, request, target)
    return codec.write(request, target)


def relay_call(codec: Codec, native: Native, request: Request, target: Target) -> Call:
    """Run the codec's `relay`, in a thread for a large request."""
    if request.large:
        return compute(codec.relay, native, request, target)
    return codec.relay(native, request, target)


def read_answer(codec: AnswerReader, reply: UpstreamReply, relayed: bool) -> Any:
    """Receive the body and run the codec's `read`, in a thread for a large body."""
    body = reply.read_all()
    if is_large(body):
        check_parts(body)
        return compute(_read_large, codec, BufferedReply(reply, body), relayed)
    result = codec.read(BufferedReply(reply, body), relayed)
    if not relayed:
        _check_texts(result)
    return result


def _read_large(codec: AnswerReader, whole: BufferedReply, relayed: bool) -> Any:
    result = codec.read(whole, relayed)
    result.large = True
    # Each choice is written separately, and no caller can request more than this.
    if max(len(getattr(result, name, ())) for name in ("choices", "images")) > MAX_CHOICES:
        raise UpstreamFailed(f"The provider sent more than {MAX_CHOICES} answers to one request.")
    if relayed:
        return result
    if sum(len(choice.parts) for choice in getattr(result, "choices", ())) > MAX_PARTS:
        raise UpstreamFailed(f"The provider sent an answer of more than {MAX_PARTS:,} texts and calls.")
    _check_texts(result)
    return result


def _check_texts(result: Any) -> None:
    """Raise UpstreamFailed when a text is not a string: readers do not check the types of a provider's values."""
    try:
        for choice in getattr(result, "choices", ()):
            for part in choice.parts:
                text_length(part)
    except TypeError:
        raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None
