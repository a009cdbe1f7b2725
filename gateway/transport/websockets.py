"""WebSockets (RFC 6455): an open connection of either side, and the opening handshake of either side.

wsproto reads and writes the frames. Nothing is queued: a message is read only when the next one is requested, so a slow
reader makes its peer wait through TCP flow control.
Decided against simple-websocket where the server is our own: a thread of it reads ahead into an unbounded list (see
sock_sockets.py), and its client connects by name, past the address guard.
"""

import codecs
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import gevent
import h11
from gevent.lock import BoundedSemaphore
from msgspec import Struct
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from gateway.errors import InvalidRequest, Overloaded, UpstreamFailed
from gateway.runtime.threads import compute_if
from gateway.transport.websocket_channels import (
    FAULT,
    LOST,
    NO_CODE,
    NO_TEXT,
    NORMAL,
    TOO_LARGE,
    TRY_LATER,
    HandshakeRefused,
    SocketClosed,
)

# Codes that must not appear in a close frame (RFC 6455, section 7.4.1).
NO_UTF8 = 1007
UNSENDABLE = frozenset((1004, NO_CODE, LOST, 1015))
# The largest message: providers accept events with 15 MB of sound, which base64 makes a third larger.
MAX_MESSAGE_BYTES = 21 << 20
# Frames and messages are cheap to send and arrive by the thousand, so other greenlets run after this many.
FRAMES_PER_TURN = 64
MESSAGES_PER_TURN = 16
THREAD_BYTES = 1 << 18  # bytes from which a message is masked in a thread
REFUSAL_BYTES = 65_536
REASON_BYTES = 123
CLOSE_TIMEOUT_S = 0.2  # how long `close` waits for a send in progress
# The headers of a request that belong to its handshake.
OPENING = frozenset(
    ("host", "upgrade", "connection", "sec-websocket-key", "sec-websocket-version", "sec-websocket-protocol")
)


def sendable(number: int) -> int:
    """Return the code for a close frame; FAULT for a code that must not be sent."""
    if number in UNSENDABLE or not 1000 <= number <= 4999:
        return FAULT
    return number


def shortened(reason: str) -> str:
    """Return as much of a reason as a close frame can carry."""
    return reason.encode()[:REASON_BYTES].decode(errors="ignore")


class Channel(Protocol):
    """Bytes in both directions.

    `receive` waits for bytes and returns b"" at the end; both methods raise OSError when the peer disconnected. After
    `close` nothing is received; `linger` lets the peer read the last message. `hold` sets how many bytes of a long
    message are in memory; Overloaded when that is too much.
    """

    def receive(self) -> bytes: ...
    def send(self, data: bytes) -> None: ...
    def linger(self) -> None: ...
    def close(self) -> None: ...
    def hold(self, size: int) -> None: ...


class SendingSocket(ABC):
    """The sending side of an open WebSocket: frames of several greenlets go out one after the other.

    `closed`: this side has sent its close frame, or the peer disconnected.
    """

    def __init__(self) -> None:
        self._sending = BoundedSemaphore(1)
        self.closed = False

    def send(self, text: str) -> None:
        """Send a message, waiting while the peer does not read. SocketClosed."""
        with self._sending:
            self._send(TextMessage(data=text), len(text) > THREAD_BYTES)

    def ping(self) -> None:
        """Send a ping, unless something is being sent. SocketClosed."""
        if self._sending.acquire(blocking=False):
            try:
                self._send(Ping(payload=b""))
            finally:
                self._sending.release()

    def close(self, number: int = NORMAL, reason: str = "") -> None:
        """Send the close frame once, unless the peer does not read. Does not wait for the peer's; never raises."""
        if self.closed or not self._sending.acquire(timeout=CLOSE_TIMEOUT_S):
            self.closed = True
            return
        try:
            self._send_close(sendable(number), shortened(reason))
        finally:
            self.closed = True
            self._sending.release()

    @abstractmethod
    def _send(self, event: Event, large: bool = False) -> None:
        """Send an event; a `large` one is written in a thread. SocketClosed."""

    @abstractmethod
    def _send_close(self, number: int, reason: str) -> None:
        """Send the close frame. Never raises."""


class WebSocket(SendingSocket):
    """One end of an open WebSocket. Several greenlets may send, one may receive.

    `code` and `reason` are those of the peer's close frame after `receive` returned None (1006: it closed without one).
    `bytes_too`: binary messages are accepted as text in UTF-8, as some servers send theirs.
    """

    def __init__(
        self, channel: Channel, connection: WSConnection, maximum: int = MAX_MESSAGE_BYTES, bytes_too: bool = False
    ) -> None:
        super().__init__()
        self._channel = channel
        self._connection = connection
        self._maximum = maximum
        self._bytes_too = bytes_too
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._read = 0
        self._weighs = False  # the channel knows of bytes held for a message
        self.code = LOST
        self.reason = ""
        self.received_count = 0  # frames of the peer, by which a silent peer is detected

    def receive(self) -> str | None:
        """Return the next message, and release the previous one.

        None when the connection is closed, or was closed because of what the peer sent: binary data (1003), too large a
        message (1009), invalid UTF-8 (1007), or more than the worker may hold (1013).
        """
        if self._weighs:
            self._weigh(0)
        held = bytearray()  # pieces of a message; a str would take up to four bytes a character
        while True:
            for event in self._connection.events():
                self.received_count += 1
                if self.received_count % FRAMES_PER_TURN == 0:
                    gevent.sleep(0)
                event = self._as_text(event)
                if type(event) is TextMessage:
                    held += event.data.encode()
                    if not self._fits(len(held)):
                        return None
                    if event.message_finished:
                        self._take_turn()
                        return compute_if(len(held) > THREAD_BYTES, held.decode)
                elif not self._answer(event):
                    return None
            if not self._fill():
                return None

    def linger(self) -> None:
        """Let the peer read the last message for a moment. Never raises."""
        with suppress(OSError):
            self._channel.linger()

    def abort(self) -> None:
        """End the connection at once; a greenlet that receives finds it closed."""
        self.closed = True
        self._channel.close()

    def _send(self, event: Event, large: bool = False) -> None:
        if self.closed:
            raise SocketClosed
        try:
            data = compute_if(large, self._connection.send, event)
            self._channel.send(bytes(data))
        except (LocalProtocolError, OSError):
            self.closed = True
            raise SocketClosed from None

    def _send_close(self, number: int, reason: str) -> None:
        with suppress(SocketClosed):
            self._send(CloseConnection(code=number, reason=reason))

    def _fill(self) -> bool:
        """Receive from the peer; returns whether anything came."""
        try:
            data = self._channel.receive()
            if data:
                self._connection.receive_data(data)
        except (OSError, LocalProtocolError, RemoteProtocolError):
            data = b""
        if not data:
            self.closed = True
        return bool(data)

    def _as_text(self, event: Event) -> Event:
        """Convert a piece of a binary message to text where such messages are accepted; invalid UTF-8 closes the
        connection (1007)."""
        if not self._bytes_too or not isinstance(event, BytesMessage):
            return event
        try:
            text = self._decode(event.data, event.message_finished)
        except UnicodeDecodeError:
            return CloseConnection(code=NO_UTF8, reason="A message is not valid UTF-8.")
        return TextMessage(data=text, frame_finished=event.frame_finished, message_finished=event.message_finished)

    def _answer(self, event: Event) -> bool:
        """Handle an event that is not text; returns whether the connection continues."""
        if isinstance(event, Ping):
            try:
                with self._sending:
                    self._send(Pong(payload=event.payload))
            except SocketClosed:
                return False
            return True
        if isinstance(event, Pong):
            return True
        if isinstance(event, CloseConnection):
            self._end(event)
            return False
        if isinstance(event, BytesMessage):
            self._refuse(NO_TEXT, "Messages are JSON as text.")
            return False
        return True

    def _end(self, event: CloseConnection) -> None:
        """Handle the peer's close frame, or invalid frames, which wsproto reports in the same way."""
        self.code = int(event.code)
        self.reason = event.reason or ""
        if self._connection.state is ConnectionState.OPEN:
            self._refuse(self.code, self.reason)
            return
        self.close(NORMAL if self.code in UNSENDABLE else self.code)

    def _fits(self, size: int) -> bool:
        """Return whether a message may have this many bytes; else close the connection."""
        if size > self._maximum:
            self._refuse(TOO_LARGE, f"A message has at most {self._maximum} bytes.")
            return False
        return size <= THREAD_BYTES or self._weigh(size)

    def _weigh(self, size: int) -> bool:
        """Return whether this many bytes of a message may be held; else close the connection."""
        self._weighs = size > 0
        try:
            self._channel.hold(size)
        except Overloaded as error:
            self._refuse(TRY_LATER, error.message)
            return False
        return True

    def _refuse(self, code: int, reason: str) -> None:
        self.code = code
        self.reason = reason
        self.close(code, reason)

    def _take_turn(self) -> None:
        """Let other greenlets run now and then: a message causes more work than a frame."""
        self._read += 1
        if self._read % MESSAGES_PER_TURN == 0:
            gevent.sleep(0)


class Handshake:
    """The opening handshake of a caller, from its head. InvalidRequest for an invalid one."""

    def __init__(self, headers: Mapping[str, str], path: str) -> None:
        self._connection = WSConnection(ConnectionType.SERVER)
        given = [(name.encode(), value.encode("latin-1")) for name, value in headers.items() if name in OPENING]
        try:
            self._connection.initiate_upgrade_connection(given, path)
        except (RemoteProtocolError, LocalProtocolError, h11.ProtocolError, UnicodeError) as error:
            text = f"The WebSocket handshake is not valid: {error}."
            raise InvalidRequest(text, code="invalid_handshake") from None
        self.offered: list[str] = []
        for event in self._connection.events():
            if isinstance(event, Request):
                self.offered = event.subprotocols

    def accept(self, channel: Channel, subprotocol: str | None, headers: Sequence[tuple[str, str]]) -> WebSocket:
        """Accept the handshake with one of the `offered` subprotocols and further headers. SocketClosed."""
        own = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        try:
            channel.send(self._connection.send(AcceptConnection(subprotocol=subprotocol, extra_headers=own)))
        except OSError:
            raise SocketClosed from None
        return WebSocket(channel, self._connection)


def request(channel: Channel, host: str, target: str, headers: Mapping[str, str]) -> WebSocket:
    """Open a WebSocket at a server. HandshakeRefused with its response; UpstreamFailed for invalid HTTP; OSError."""
    connection = WSConnection(ConnectionType.CLIENT)
    given = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    refusal: HandshakeAnswer | None = None
    try:
        channel.send(connection.send(Request(host=host, target=target, extra_headers=given)))
        while True:
            data = channel.receive()
            connection.receive_data(data or None)
            for event in connection.events():
                if isinstance(event, AcceptConnection):
                    return WebSocket(channel, connection, bytes_too=True)
                refusal = _read_refusal(event, refusal)
            if refusal is not None and (refusal.whole or not data):
                raise HandshakeRefused(refusal.status, refusal.headers, refusal.body[:REFUSAL_BYTES])
            if not data:
                raise ConnectionResetError("the server disconnected in the middle of the handshake")
    except (RemoteProtocolError, LocalProtocolError, h11.ProtocolError):
        raise UpstreamFailed(f"{host} did not answer the WebSocket handshake in valid HTTP.") from None


class HandshakeAnswer(Struct):
    """A response that refuses the handshake, as far as it has arrived."""

    status: int
    headers: dict[str, str]
    whole: bool
    body: bytes = b""


def _read_refusal(event: Event, before: HandshakeAnswer | None) -> HandshakeAnswer | None:
    if isinstance(event, RejectConnection):
        pairs = [(bytes(name).decode("latin-1"), bytes(value).decode("latin-1")) for name, value in event.headers]
        return HandshakeAnswer(event.status_code, {name.lower(): value for name, value in pairs}, not event.has_body)
    if isinstance(event, RejectData) and before is not None:
        before.body += event.data
        before.whole = event.body_finished or len(before.body) > REFUSAL_BYTES
    return before
