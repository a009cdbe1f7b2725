"""A session with the Live API in the callers' format: an actor that reads the caller's events and the upstream's
messages one after the other, so that what they change is changed in one place."""

from collections.abc import Callable
from queue import Empty, Full, Queue

import orjson

from gateway.clock import Clock
from gateway.errors import GatewayError, InvalidRequest, UpstreamFailed
from gateway.neutral.realtime import ServerEvent
from gateway.providers.google.live.commands import LiveCommands, context_of
from gateway.providers.google.live.model_output import Answers
from gateway.providers.google.live.session_setup import LiveSettings, unsupported
from gateway.providers.google.live.state import LiveState
from gateway.providers.google.live.upstream_connection import Inbox, Json, LiveConnection, not_callers, refusal
from gateway.runtime.threads import compute_if, pause
from gateway.transport.handshakes import FAULT, GOING_AWAY, LOST, NORMAL, HandshakeRefused, SocketClosed

AHEAD = 32  # events and messages that wait to be read
MOST_WAITING = 1 << 20  # characters of events that wait, but for the last of them
LOOK_S = 5.0
PAUSE_S = 0.02
MOST_SETUPS = 8  # of a session in which nothing was said
SHORT_S, MOST_SHORT = 5.0, 5  # connections in a row that the upstream ended so soon
# What a connection may end with for reasons that lie in nothing that was sent over it.
OUTER = (NORMAL, GOING_AWAY, LOST, FAULT)
LARGE = 1 << 18
INSTRUCTIONS = frozenset(("instructions",))

# Opens a connection with these settings; with a handle one that goes on with the conversation.
Connect = Callable[[LiveSettings, str | None], LiveConnection]
Judge = Callable[[HandshakeRefused], GatewayError]


class LiveSession:
    """An UpstreamSession. `connection` is set up with `settings`; `connect` opens another one, `judge` says whose fault
    it is that one ended."""

    def __init__(self, settings: LiveSettings, connection: LiveConnection, connect: Connect, judge: Judge) -> None:
        self._connection = connection
        self._connect = connect
        self._judge = judge
        self._inbox: Inbox = Queue(AHEAD)
        self._state = LiveState(settings)
        self._answers = Answers(self._state)
        self._callers = LiveCommands(self._state, self._send, self._begin_anew)
        self._before = 0  # what was heard on earlier connections
        self._closed = False
        self._setups = self._waiting = self._short = 0
        self._opened = Clock.monotonic()  # the connection
        self.code = LOST
        self.reason = ""
        self._state.session("created")
        connection.read_into(self._inbox)

    @property
    def heard(self) -> int:
        """Messages that came, answers to pings too."""
        return self._before + self._connection.link.heard

    def send(self, text: str) -> None:
        """An event of the caller. SocketClosed."""
        while self._waiting > MOST_WAITING and not self._closed:
            pause(PAUSE_S)
        while not self._closed:
            try:
                self._inbox.put((None, text), timeout=LOOK_S)
                self._waiting += len(text)
                return
            except Full:
                continue  # the caller reads nothing, and so is not read
        raise SocketClosed

    def receive(self) -> ServerEvent | None:
        """The next event; None once the session has ended. GatewayError where that is not as it should be."""
        out = self._state.out
        try:
            while not out:
                if not self._go_ahead():
                    self._closed = True  # who waits to send finds nobody who reads
                    return None
        except BaseException:
            self._closed = True
            raise
        return out.popleft()

    def _go_ahead(self) -> bool:
        """Take what comes next. Whether the session goes on."""
        if self._closed:
            return False
        try:
            source, item = self._inbox.get(timeout=self._patience())
        except Empty:
            source = None
            item = None
        if not self._take(source, item):
            return False
        self._answers.pass_by()
        if not self._state.turns:
            self._rest()
        return True

    def ping(self) -> None:
        self._connection.link.ping()

    def close(self, number: int = NORMAL, reason: str = "") -> None:
        self._connection.link.close(number, reason)

    def abort(self) -> None:
        """End it at once; who receives finds it closed."""
        self._closed = True
        self._connection.abort()
        if not self._inbox.full():
            self._inbox.put_nowait((None, None))

    def _patience(self) -> float | None:
        due = self._answers.due()
        if due is None:
            return None
        return max(due - Clock.monotonic(), 0.001)

    def _take(self, source: LiveConnection | None, item: Json | str | GatewayError | None) -> bool:
        """Something that came. Whether the session goes on."""
        if isinstance(item, str):
            self._waiting -= len(item)
            self._take_event(item)
        elif source is not self._connection:
            return True  # of a connection that was replaced, or to wake who waits
        elif isinstance(item, GatewayError):
            raise item
        elif item is None:
            return self._go_on_after_end()
        else:
            self._answers.take(item)
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
            # What ended it is read next, also where the upstream still speaks and only takes nothing any more.
            self._connection.link.abort()

    # Other connections.

    def _rest(self) -> None:
        """Nothing is being made: what one response changed is as before, and a connection that has to be is replaced by
        another that goes on with the conversation."""
        state = self._state
        if state.overridden:
            state.overridden = False
            self._send(context_of(state.settings, INSTRUCTIONS))
        speaks = state.speech.begun or state.speech.activity
        if (state.stale or state.leaving) and state.fresh and not speaks and not self._closed:
            self._go_on()

    def _begin_anew(self, settings: LiveSettings) -> None:
        """Nothing was said yet: another connection with other settings. InvalidRequest where those are refused."""
        self._setups += 1
        if self._setups > MOST_SETUPS:
            raise unsupported("session", "The session was changed too often before anything was said; open another.")
        try:
            connection = self._connect(settings, None)
        except HandshakeRefused as refused:
            raise self._judge(refused) from None
        self._replace(connection)

    def _go_on(self) -> None:
        """Another connection for the same conversation. GatewayError."""
        state = self._state
        self._connection.abort()
        if not state.stale:
            if Clock.monotonic() - self._opened < SHORT_S:
                self._short = self._short + 1
            else:
                self._short = 0
        if self._short > MOST_SHORT:
            raise UpstreamFailed("The provider ends each connection of this session soon after it took it.")
        try:
            connection = self._connect(state.settings, state.handle)
        except HandshakeRefused as refused:
            raise self._judge(not_callers(refused)) from None
        state.leaving = state.stale = state.fresh = False
        self._replace(connection)

    def _replace(self, connection: LiveConnection) -> None:
        before = self._connection
        self._connection = connection
        self._before += before.link.heard
        self._opened = Clock.monotonic()
        self._state.speech.activity = False  # of this one the upstream was not told that somebody speaks
        before.abort()
        connection.read_into(self._inbox)
        if self._closed:
            connection.abort()

    def _go_on_after_end(self) -> bool:
        """The connection ended. A conversation that can go on does, where no turn of the model was cut by it."""
        link = self._connection.link
        state = self._state
        if self._closed:
            return False
        if (state.fresh or state.leaving) and state.handle and not state.turns and link.code in OUTER:
            self._go_on()
            return True
        self.code = link.code
        self.reason = ""
        if link.code in (NORMAL, GOING_AWAY, LOST):
            return False
        raise self._judge(refusal(link.code, link.reason))
