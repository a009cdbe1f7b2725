"""One realtime session: relays events both ways between a caller and a provider, and reads each before passing it on.

Three greenlets serve it: the caller's connection reads the caller, one reads the provider, one checks timeouts. None of
them has a queue: a side that does not read makes the other side wait, through TCP flow control.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from msgspec import Struct

from gateway.callers.authentication import Caller
from gateway.clock import Clock
from gateway.engine.realtime.session_guard import SessionGuard
from gateway.engine.realtime.session_turns import SessionTurns
from gateway.errors import (
    GatewayError,
    Gone,
    Internal,
    OutOfCredits,
    SpendingLimitReached,
    StreamTruncated,
    Unauthenticated,
    Unavailable,
)
from gateway.neutral.realtime import ClientEvent, ServerEvent
from gateway.providers.upstream_calls import SessionLink, UpstreamSession
from gateway.runtime.threads import later, pause, spawn
from gateway.store.shared_slots import HeldSlots, give
from gateway.transport.websocket_channels import FAULT, GOING_AWAY, LOST, NO_CODE, NORMAL, POLICY, SocketClosed

# Timeout checks of a session over WebSockets: its own conditions, pings, and links from which nothing is received.

CHECK_INTERVAL_S = 0.5
PING_INTERVAL_S = 20.0
SILENCE_TIMEOUT_S = 70.0  # without a frame, despite pings, the other side of a link counts as disconnected


class WatchedLink(Protocol):
    """A connection of a session. `ping` raises SocketClosed; `received_count` counts received frames."""

    @property
    def received_count(self) -> int: ...
    def ping(self) -> None: ...


class _Receipts(Struct):
    """How many frames a link has received, and since when this number is the same."""

    link: WatchedLink
    since: float
    count: int = 0

    def is_silent(self, now: float) -> bool:
        received = self.link.received_count
        if received != self.count:
            self.count = received
            self.since = now
            return False
        return now - self.since > SILENCE_TIMEOUT_S


class WatchedSession(ABC):
    """A session with timeouts. `_ended` stops the checks."""

    _ended: bool

    def _watch_links(self, clock: Clock, began: float, links: Sequence[WatchedLink]) -> None:
        """Check the session and its links until it ends."""
        pinged = began
        receipts = [_Receipts(link, began) for link in links]
        while not self._ended:
            pause(CHECK_INTERVAL_S)
            now = clock.monotonic()
            try:
                self._check(now)
                if now - pinged >= PING_INTERVAL_S:
                    pinged = now
                    for link in links:
                        link.ping()
            except (Unavailable, SocketClosed):
                continue  # the check was not possible; meanwhile no turn can be admitted
            except GatewayError as error:
                self._fail(error)
            for entry in receipts:
                if entry.is_silent(now):
                    self._end_silent(entry.link)

    @abstractmethod
    def _check(self, now: float) -> None:
        """End the session if it must end, or raise the reason. Unavailable if that is not known now."""

    @abstractmethod
    def _fail(self, error: GatewayError) -> None:
        """End the session with this error."""

    @abstractmethod
    def _end_silent(self, link: WatchedLink) -> None:
        """End the session because the other side of a link answers not even pings."""


log = logging.getLogger(__name__)

USAGE_TIMEOUT_S = 5.0  # how long to wait for the usage of responses after the caller left
SHUTDOWN_USAGE_TIMEOUT_S = 0.5  # the same while the worker shuts down
CLOSE_TIMEOUT_S = 2.0  # how long a caller may take to answer a close frame
ERROR_INTERVAL_S = 1.0  # least interval of an error that every piece of sound would cause
FATAL_ERRORS = (SpendingLimitReached, OutOfCredits, Unauthenticated, Gone)
PROVIDER_ENDED = "The provider ended the session."


class CallerSocket(SessionLink, Protocol):
    """A caller's socket. `linger` lets the caller read the last message."""

    def linger(self) -> None: ...


class CallerEvents(Protocol):
    """The caller's event format: reads the caller's events and writes errors."""

    def read(self, text: str) -> ClientEvent:
        """Return a checked event. GatewayError, with the caller's event id in `details`, for an invalid one."""
        ...

    def error(self, error: GatewayError, event: str) -> str:
        """Return an error event; `event` is the id of the event that caused it, "" for none."""
        ...

    def cancel(self, response: str) -> str:
        """Return an event that cancels a response."""
        ...


class SessionLimits(Struct, frozen=True):
    """The maximum duration of a session and of silence of its caller, in seconds; 0: no limit."""

    longest_s: float
    idle_s: float


class SessionWatch(Struct):
    """The conditions under which a session continues.

    `caller` looks its caller up again, or raises the reason why access ended; `leaving` returns whether the worker
    shuts down; `permits` raises when the caller may no longer use the place; `slots` are its share of the simultaneous
    sessions, `running` the sessions of the worker.
    """

    caller: Callable[[], Caller]
    permits: Callable[[Caller], object]
    leaving: Callable[[], bool]
    slots: tuple[HeldSlots, ...]
    running: set[object]
    limits: SessionLimits
    clock: Clock


class RealtimeSession(WatchedSession):
    """A session that is open upstream. `run` serves a caller's socket until either side ends it."""

    def __init__(
        self,
        upstream: UpstreamSession,
        turns: SessionTurns,
        events: CallerEvents,
        watch: SessionWatch,
        guard: SessionGuard,
    ) -> None:
        self._guard = guard
        self._upstream = upstream
        self._turns = turns
        self._events = events
        self._watch = watch
        turns.books.caller_now = self._caller_now
        self._caller: CallerSocket | None = None
        self._gone = False  # the caller left; only the usage of responses is awaited
        self._ended = False  # further events of the caller are ignored
        self._error: GatewayError | None = None
        self._began = self._last = watch.clock.monotonic()
        self._complained = 0.0

    def run(self, caller: CallerSocket, first: tuple[ClientEvent, ...] = ()) -> None:
        """Serve until the end; `first` is sent upstream before the caller's events. All admitted turns are settled or
        released when this returns."""
        self._caller = caller
        self._watch.running.add(self)
        reader = spawn(self._from_upstream)
        ticker = spawn(self._look)
        try:
            for event in first:
                self._send(event)
            self._from_caller(caller)
            caller.linger()
        except SocketClosed:
            self._end_lost(PROVIDER_ENDED)
            caller.linger()
        finally:
            self._watch.running.discard(self)
            self._gone = self._ended = True
            ticker.kill(block=False)
            caller.close(GOING_AWAY)  # unless a close frame was already sent
            caller.abort()  # the reader may wait for a caller that reads nothing any more
            self._drain()
            reader.join(SHUTDOWN_USAGE_TIMEOUT_S if self._watch.leaving() else USAGE_TIMEOUT_S)
            self._settle_rest()
            self._upstream.abort()
            reader.kill(block=False)

    def close(self) -> None:
        """Release everything that a session holds that never ran or has ended."""
        self._turns.close(None)
        self._upstream.abort()
        give(self._watch.slots)

    # The caller's events.

    def _from_caller(self, caller: CallerSocket) -> None:
        while self._take(caller):
            pass

    def _take(self, caller: CallerSocket) -> bool:
        """Take the caller's next event; returns whether the connection continues. No variable holds an event of
        megabytes while the connection waits for the next one."""
        text = caller.receive()
        if text is None or self._ended:  # until the close frame
            return text is not None
        self._last = self._watch.clock.monotonic()
        try:
            event = self._events.read(text)
        except GatewayError as error:
            self._send_caller(self._events.error(error, (error.details or {}).get("event_id", "")))
            return True
        try:
            self._send(event)
        except GatewayError as error:
            self._turns.settings.refused(event.id)
            self._refuse(error, event)
        return True

    def _send(self, event: ClientEvent) -> None:
        """Reserve the possible cost of an event, then send it to the provider as the guardrails allow it."""
        event = self._guard.request(event)
        turns = self._turns
        turns.conversation.add(event)
        turns.settings.requested(event)
        if event.begins == "response":
            turns.request_response(event.id, event.most_output)
        elif event.begins == "sound":
            turns.add_sound(event.sound_bytes)
        else:
            turns.grow()
        self._upstream.send(event.text)

    def _refuse(self, error: GatewayError, event: ClientEvent) -> None:
        """Report to the caller why an event had no effect; a permanent error ends the session."""
        if isinstance(error, FATAL_ERRORS):
            self._end(error, event.id)
            return
        now = self._watch.clock.monotonic()
        if event.begins == "sound":
            if now - self._complained < ERROR_INTERVAL_S:
                return
            self._complained = now
        self._send_caller(self._events.error(error, event.id))

    # The provider's events.

    def _from_upstream(self) -> None:
        try:
            while self._pass_next():
                if self._gone and not self._turns.busy:
                    break
        except GatewayError as error:
            self._end(error)
        except SocketClosed:
            pass
        except Exception as error:
            log.exception("a realtime session failed")
            self._end(Internal("The session failed on our side; the operator's log has the cause."))
            self._error = self._error or Internal(str(type(error).__name__))
        else:
            self._upstream_left()
        if not self._gone:
            self._settle_rest()
        self._upstream.close(NORMAL)
        self._upstream.abort()  # the caller's greenlet may wait in a send that nothing reads any more

    def _pass_next(self) -> bool:
        """Pass on the provider's next event; returns whether its connection continues."""
        event = self._upstream.receive()
        if event is not None:
            self._pass_on(event)
        return event is not None

    def _pass_on(self, event: ServerEvent) -> None:
        """Count an event and send it to the caller; its cost is durable before."""
        failure: GatewayError | None = None
        try:
            self._turns.take(event)
        except Unavailable as error:
            self._end(error)
            return
        except GatewayError as error:
            failure = error  # the event is counted, but the session has no money left
        if self._gone and event.kind == "started":
            # It was requested just before the caller left. The greenlet is needed because a provider may read an event
            # only while its own events are read.
            spawn(self._cancel, event.id)
        if event.text:
            try:
                for text in self._guard.answers(event.text):
                    self._send_caller(text)
            except GatewayError as error:
                failure = failure or error
        if failure is not None:
            self._end(failure)
        elif self._watch.leaving() and not self._turns.busy:
            self._leave()

    def _cancel(self, response: str) -> None:
        with suppress(SocketClosed):
            self._upstream.send(self._events.cancel(response))

    def _upstream_left(self) -> None:
        code = self._upstream.code
        reason = self._upstream.reason
        if self._gone or self._ended:
            return
        if code in (NO_CODE, LOST) or self._turns.busy:
            self._end_lost(PROVIDER_ENDED, FAULT if code in (NO_CODE, LOST) else code)
            return
        self._ended = True
        if self._caller is not None:
            self._caller.close(code, reason)
            self._caller_reads_on()

    # Timeouts.

    def _look(self) -> None:
        links: list[WatchedLink] = [link for link in (self._caller, self._upstream) if link is not None]
        self._watch_links(self._watch.clock, self._began, links)

    def _fail(self, error: GatewayError) -> None:
        self._end(error)

    def _end_silent(self, link: WatchedLink) -> None:
        if link is self._upstream:
            self._end_lost("The provider does not respond any more.")
        else:
            self._end(None, close_code=GOING_AWAY, reason="Nothing was received.")

    def _check(self, now: float) -> None:
        watch = self._watch
        turns = self._turns
        limits = self._watch.limits
        if watch.leaving() and not turns.busy:
            self._leave()
            return
        if limits.longest_s and now - self._began >= limits.longest_s:
            text = f"A session lasts at most {limits.longest_s:g} seconds: open another one."
            raise Gone(text, code="session_expired")
        if limits.idle_s and now - self._last >= limits.idle_s and not turns.busy:
            text = f"Nothing was sent for {limits.idle_s:g} seconds: open another session."
            raise Gone(text, code="session_idle")
        turns.books.context.caller = self._caller_now()
        for held in watch.slots:
            held.renew()

    def _caller_now(self) -> Caller:
        """Return the current caller if it may still use the place. Raises why not; Unavailable."""
        caller = self._watch.caller()
        if caller is not self._turns.books.context.caller:
            self._watch.permits(caller)
        return caller

    # The end.

    def _end_lost(self, message: str, close_code: int = FAULT) -> None:
        """End the session because the provider disconnected."""
        if not self._ended:
            self._error = StreamTruncated(message)
            self._end(self._error, close_code=close_code)

    def _leave(self) -> None:
        self._end(None, close_code=GOING_AWAY, reason="The server is restarting; connect again.")

    def _end(self, error: GatewayError | None, event: str = "", close_code: int = POLICY, reason: str = "") -> None:
        """Send the caller the reason why the session ends; only the first call has an effect."""
        if self._ended:
            return
        self._ended = True
        if error is not None:
            self._error = self._error or error
            self._send_caller(self._events.error(error, event))
            if error.status >= 500 and close_code == POLICY:
                close_code = FAULT
            reason = error.code
        if self._caller is not None:
            self._caller.close(close_code, reason)
            self._caller_reads_on()

    def _caller_reads_on(self) -> None:
        """Give the caller a moment to read the last messages and answer, then abort the socket, which ends `run`."""
        if self._caller is not None:
            later(CLOSE_TIMEOUT_S, self._caller.abort)

    def _send_caller(self, text: str) -> None:
        if self._gone or self._caller is None:
            return
        try:
            self._caller.send(text)
        except SocketClosed:
            self._gone = True  # the connection's own greenlet notices it too

    def _drain(self) -> None:
        """Cancel the responses in progress, so that the provider reports their usage."""
        try:
            for response in self._turns.responses():
                self._upstream.send(self._events.cancel(response))
        except SocketClosed:
            pass
        if not self._turns.busy:
            self._upstream.close(NORMAL)
            self._upstream.abort()

    def _settle_rest(self) -> None:
        error = self._error
        self._turns.close(error if error is not None and error.blame == "provider" else None)
        give(self._watch.slots)
