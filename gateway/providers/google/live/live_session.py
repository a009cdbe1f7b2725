"""A session with the Live API in the callers' format.

The session is an actor: it reads the caller's events and the upstream's messages one after another, so its state needs
no locks.
"""

from collections.abc import Callable
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Any

import orjson

from gateway.clock import Clock
from gateway.dialects import google as dialect
from gateway.errors import GatewayError, InvalidRequest, NotSupported, UpstreamFailed
from gateway.ids import new_hex
from gateway.neutral.realtime import TRANSCRIPTION, RealtimeRequest, ServerEvent
from gateway.neutral.request import Native
from gateway.providers.google.generate import Authorize, read_failure
from gateway.providers.google.live.commands import LiveCommands, context_of
from gateway.providers.google.live.model_output import ModelOutput
from gateway.providers.google.live.session_setup import LiveSettings, unsupported
from gateway.providers.google.live.state import LiveState
from gateway.providers.google.live.upstream_connection import Inbox, Json, LiveConnection, not_callers, refusal
from gateway.providers.google.traits import traits_of
from gateway.providers.protocol import Call, Target, UpstreamReply
from gateway.providers.upstream_calls import Dial, SessionLink, signed_in
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.threads import compute_if, pause
from gateway.transport.websocket_channels import FAULT, GOING_AWAY, LOST, NORMAL, HandshakeRefused, SocketClosed

if TYPE_CHECKING:
    from gateway.providers.google.live import live_session as sessions
    from gateway.providers.google.live import session_setup as all_settings
    from gateway.providers.google.live import upstream_connection as connections
else:
    connections = LazyImport("gateway.providers.google.live.upstream_connection")
    sessions = LazyImport("gateway.providers.google.live.live_session")
    all_settings = LazyImport("gateway.providers.google.live.session_setup")


INBOX_CAPACITY = 32  # capacity of the inbox: events and messages
MAX_QUEUED_CHARACTERS = 1 << 20  # characters of queued events from which `send` waits
CHECK_INTERVAL_S = 5.0
PAUSE_S = 0.02
MAX_SETUPS = 8  # new connections of a session before the conversation begins
SHORT_CONNECTION_S = 5.0  # lifetime below which a connection counts as short
MAX_SHORT_CONNECTIONS = 5  # consecutive short connections before the session fails
ORDERLY_CLOSE_CODES = (NORMAL, GOING_AWAY, LOST)  # close codes that report no error
LARGE = 1 << 18
INSTRUCTIONS = frozenset(("instructions",))

# Opens a connection with these settings; a handle resumes the conversation.
Connect = Callable[[LiveSettings, str | None], LiveConnection]
Judge = Callable[[HandshakeRefused], GatewayError]


class LiveSession:
    """An UpstreamSession.

    `connection` is already set up with `settings`. `connect` opens further connections, and `judge` classifies the
    error that ended a connection.
    """

    def __init__(self, settings: LiveSettings, connection: LiveConnection, connect: Connect, judge: Judge) -> None:
        self._connection = connection
        self._connect = connect
        self._judge = judge
        self._inbox: Inbox = Queue(INBOX_CAPACITY)
        self._state = LiveState(settings)
        self._output = ModelOutput(self._state)
        self._callers = LiveCommands(self._state, self._send, self._restart)
        self._before = 0  # messages received on earlier connections
        self._closed = False
        self._setups = 0
        self._waiting = 0
        self._short = 0
        self._opened = Clock.monotonic()  # time at which the current connection was opened
        self.code = LOST
        self.reason = ""
        self._state.session("created")
        connection.read_into(self._inbox)

    @property
    def received_count(self) -> int:
        """The number of received messages, including pongs."""
        return self._before + self._connection.link.received_count

    def send(self, text: str) -> None:
        """Queue an event of the caller. SocketClosed once the session has ended."""
        while self._waiting > MAX_QUEUED_CHARACTERS and not self._closed:
            pause(PAUSE_S)
        while not self._closed:
            try:
                self._inbox.put((None, text), timeout=CHECK_INTERVAL_S)
                self._waiting += len(text)
                return
            except Full:
                continue  # the caller does not read its events, so the gateway stops reading from the caller
        raise SocketClosed

    def receive(self) -> ServerEvent | None:
        """Return the next event, or None once the session has ended. GatewayError if it ended with an error."""
        out = self._state.out
        try:
            while not out:
                if not self._handle_next():
                    self._closed = True  # ends a `send` that waits for space
                    return None
        except BaseException:
            self._closed = True
            raise
        return out.popleft()

    def _handle_next(self) -> bool:
        """Handle the next event or message, and return whether the session continues."""
        if self._closed:
            return False
        try:
            source, item = self._inbox.get(timeout=self._patience())
        except Empty:
            source = None
            item = None
        if not self._take(source, item):
            return False
        self._output.end_overdue()
        if not self._state.turns:
            self._rest()
        return True

    def ping(self) -> None:
        self._connection.link.ping()

    def close(self, number: int = NORMAL, reason: str = "") -> None:
        self._connection.link.close(number, reason)

    def abort(self) -> None:
        """End the session at once; `receive` then returns None."""
        self._closed = True
        self._connection.abort()
        if not self._inbox.full():
            self._inbox.put_nowait((None, None))

    def _patience(self) -> float | None:
        due = self._output.due()
        if due is None:
            return None
        return max(due - Clock.monotonic(), 0.001)

    def _take(self, source: LiveConnection | None, item: Json | str | GatewayError | None) -> bool:
        """Handle an item of the inbox, and return whether the session continues."""
        if isinstance(item, str):
            self._waiting -= len(item)
            self._take_event(item)
        elif source is not self._connection:
            return True  # a message of a replaced connection, or an item that only wakes the reader
        elif isinstance(item, GatewayError):
            raise item
        elif item is None:
            return self._resume_after_end()
        else:
            self._output.take(item)
        return True

    def _take_event(self, text: str) -> None:
        wire: Json = compute_if(len(text) > LARGE, orjson.loads, text)
        try:
            self._callers.take(wire)
        except InvalidRequest as error:
            self._state.refuse(error, wire.get("event_id", ""))

    def _send(self, message: Json) -> None:
        try:
            self._connection.send(message)
        except SocketClosed:
            # The reader then reports the reason, also if the upstream only stopped reading.
            self._connection.link.abort()

    # Further connections.

    def _rest(self) -> None:
        """Restore the instructions that a single response changed, and replace a stale or ending connection.

        Called while no turn is open.
        """
        state = self._state
        if state.overridden:
            state.overridden = False
            self._send(context_of(state.settings, INSTRUCTIONS))
        speaking = state.speech.begun or state.speech.activity
        if (state.stale or state.leaving) and state.fresh and not speaking and not self._closed:
            self._resume()

    def _restart(self, settings: LiveSettings) -> None:
        """Open a new connection with changed settings, before the conversation begins.

        InvalidRequest if the provider refuses the settings.
        """
        self._setups += 1
        if self._setups > MAX_SETUPS:
            message = "The session was changed too often before the conversation began. Open a new session."
            raise unsupported("session", message)
        try:
            connection = self._connect(settings, None)
        except HandshakeRefused as refused:
            raise self._judge(refused) from None
        self._replace(connection)

    def _resume(self) -> None:
        """Open a new connection for the same conversation. GatewayError if that fails."""
        state = self._state
        self._connection.abort()
        if not state.stale:
            if Clock.monotonic() - self._opened < SHORT_CONNECTION_S:
                self._short = self._short + 1
            else:
                self._short = 0
        if self._short > MAX_SHORT_CONNECTIONS:
            raise UpstreamFailed("The provider closes every connection of this session shortly after it is opened.")
        try:
            connection = self._connect(state.settings, state.handle)
        except HandshakeRefused as refused:
            raise self._judge(not_callers(refused)) from None
        state.leaving = state.stale = state.fresh = False
        self._replace(connection)

    def _replace(self, connection: LiveConnection) -> None:
        before = self._connection
        self._connection = connection
        self._before += before.link.received_count
        self._opened = Clock.monotonic()
        self._state.speech.activity = False  # the new connection has not received an activityStart
        before.abort()
        connection.read_into(self._inbox)
        if self._closed:
            connection.abort()

    def _resume_after_end(self) -> bool:
        """Handle the end of the connection, and return whether the session continues.

        The conversation is resumed if it can be, and if no turn of the model was cut off.
        """
        link = self._connection.link
        state = self._state
        if self._closed:
            return False
        if (
            (state.fresh or state.leaving)
            and state.handle
            and not state.turns
            and link.code in (*ORDERLY_CLOSE_CODES, FAULT)
        ):
            self._resume()
            return True
        self.code = link.code
        self.reason = ""
        if link.code in ORDERLY_CLOSE_CODES:
            return False
        raise self._judge(refusal(link.code, link.reason))


# Opens sessions with the Live API: URL, credential and first setup.

RECONNECT_TIMEOUT_S = 10.0  # timeout of opening a further connection of a session
GEMINI_API_PATH = "/ws/google.ai.generativelanguage.{version}.GenerativeService.BidiGenerateContent"
ENTERPRISE = "/ws/google.cloud.aiplatform.{version}.LlmBidiService/BidiGenerateContent"


class GoogleRealtime:
    """Codec of realtime sessions. `authorize` adds the credential to the headers."""

    dialect = dialect.NAME
    waits = True  # for a token
    transcribes = True

    def __init__(self, authorize: Authorize) -> None:
        self._authorize = authorize

    def write(self, request: RealtimeRequest, target: Target) -> Call:
        """Build the handshake. NotSupported for transcription sessions."""
        if request.content().type == TRANSCRIPTION:
            raise NotSupported(f"{target.mapping.key} does not support transcription sessions.", param="session.type")
        headers = {name.lower(): value for name, value in target.provider.headers.items()}
        self._authorize(headers, target)
        return Call("GET", address_of(target)[0], headers)

    def relay(self, native: Native, request: RealtimeRequest, target: Target) -> Call:
        """Build the handshake; a session has no body to relay."""
        return self.write(request, target)

    def read(self, reply: UpstreamReply, relayed: bool) -> Any:
        """Raise NotSupported: a session has no single response."""
        raise NotSupported("A realtime session is opened over a WebSocket.")

    def open(self, request: RealtimeRequest, target: Target, dial: Dial, seconds: float) -> "sessions.LiveSession":
        """Open a session with the default settings.

        Errors thus occur before the gateway answers the caller's handshake. Changes by the caller before the
        conversation begins open another connection.
        """
        settings = all_settings.LiveSettings(target, f"sess_{new_hex()}")
        model = address_of(target)[1]

        def connect(
            changed: "all_settings.LiveSettings", handle: str | None, timeout: float = RECONNECT_TIMEOUT_S
        ) -> "connections.LiveConnection":
            return connections.connect(dial_upstream, changed.setup(model, handle), timeout)

        def dial_upstream(timeout: float) -> SessionLink:
            # Later connections of a long session need the current token of a workload identity.
            return dial(self.write(request, signed_in(target)), timeout)

        def judge(refused: HandshakeRefused) -> GatewayError:
            return read_failure(refused, target)

        try:
            first = connect(settings, None, seconds)
        except HandshakeRefused as refused:
            raise connections.not_callers(refused) from None
        return sessions.LiveSession(settings, first, connect, judge)


def address_of(target: Target) -> tuple[str, str]:
    """Return the URL of the WebSocket, and the model's name in the setup."""
    base = target.address.partition("?")[0].rstrip("/")
    name = target.mapping.external_id
    if not traits_of(target).enterprise:
        root, _, version = base.rpartition("/")
        return f"{root}{GEMINI_API_PATH.format(version=version)}", name if "/" in name else f"models/{name}"
    scheme, _, rest = base.partition("://")
    host, version, *path = rest.split("/")
    model = "/".join([*path, "models", name])
    return f"{scheme}://{host}{ENTERPRISE.format(version=version)}", model
