"""Senders of upstream calls (over the network, or to a server inside this process) and listeners that observe the
calls."""

from collections.abc import Callable, Iterator
from threading import Lock
from typing import Protocol as Interface
from typing import overload

from gateway.neutral.realtime import RealtimeRequest, ServerEvent
from gateway.providers.protocol import Call, Codec, Target, UpstreamReply
from gateway.runtime.large_files import MessageBody
from gateway.runtime.threads import Job
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
