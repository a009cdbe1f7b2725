"""One realtime session: events relayed both ways between a caller and a provider, each read before it is passed on.

Three greenlets serve it: that of the caller's connection reads the caller, one the provider, one looks at the clock.
None of them has a queue: who does not read what is sent to them keeps the other side waiting, by TCP's own means.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from gateway.accounts.authentication import Caller
from gateway.clock import Clock
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
from gateway.providers.openers import SessionLink, UpstreamSession
from gateway.runtime.threads import later, pause, spawn
from gateway.store.shared_slots import HeldSlots
from gateway.transport.handshakes import FAULT, GOING_AWAY, LOST, NO_CODE, NORMAL, POLICY, SocketClosed

log = logging.getLogger(__name__)

LOOK_S = 0.5  # how often the clock is looked at
PING_S = 20.0
SILENT_S = 70.0  # without a single frame, pings having been sent, the other side is gone
DRAIN_S = 5.0  # how long a provider may take to tell what a response cost that nobody waits for any more
LEAVING_S = 0.5  # the same while the worker ends
ANSWER_S = 2.0  # how long a caller may take to answer a close frame
COMPLAIN_S = 1.0  # an error that every piece of sound would bring is told so often
FATAL = (SpendingLimitReached, OutOfCredits, Unauthenticated, Gone)
GONE = "The provider ended the session."


class CallerSocket(SessionLink, Protocol):
    """A caller's socket. `linger` lets it read what was sent last."""

    def linger(self) -> None: ...


class CallerEvents(Protocol):
    """The caller's format: reads their events, and writes errors for them."""

    def read(self, text: str) -> ClientEvent:
        """A checked event. GatewayError with the caller's own id of it in `details`, for one that is refused."""
        ...

    def error(self, error: GatewayError, event: str) -> str:
        """An error event; `event` is the id of the event that it is about, "" for none."""
        ...

    def cancel(self, response: str) -> str:
        """An event that ends a response."""
        ...


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """How long a session may last, and be without an event of its caller; 0: without an end."""

    longest_s: float
    idle_s: float


@dataclass(slots=True)
class SessionWatch:
    """What a session is held against while it lasts. `caller` finds its caller anew, or raises what ended them;
    `leaving` tells that the worker ends; `permits` raises where the caller may not use the place any more; `slots` are
    its share of sessions at once, `running` the sessions of the worker."""

    caller: Callable[[], Caller]
    permits: Callable[[Caller], object]
    leaving: Callable[[], bool]
    slots: tuple[HeldSlots, ...]
    running: set[object]
    limits: SessionLimits
    clock: Clock


class RealtimeSession:
    """A session that is open upstream. `run` serves a caller's socket until either side ends it."""

    def __init__(
        self,
        upstream: UpstreamSession,
        turns: SessionTurns,
        events: CallerEvents,
        watch: SessionWatch,
    ) -> None:
        self._upstream = upstream
        self._turns = turns
        self._events = events
        self._watch = watch
        turns.books.caller_now = self._caller_now
        self._caller: CallerSocket | None = None
        self._gone = False  # the caller; from then on only what responses cost is waited for
        self._ended = False  # nothing of the caller is taken any more
        self._error: GatewayError | None = None
        self._began = self._last = watch.clock.monotonic()
        self._complained = 0.0

    def run(self, caller: CallerSocket, first: tuple[ClientEvent, ...] = ()) -> None:
        """Serve until the end; `first` goes upstream before anything of the caller's. Everything that was admitted is
        settled or given back when this returns."""
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
            self._lose(GONE)
            caller.linger()
        finally:
            self._watch.running.discard(self)
            self._gone = self._ended = True
            ticker.kill(block=False)
            caller.close(GOING_AWAY)  # unless it was told why already
            caller.abort()  # the reader may wait for one who reads nothing any more
            self._drain()
            reader.join(LEAVING_S if self._watch.leaving() else DRAIN_S)
            self._settle_rest()
            self._upstream.abort()
            reader.kill(block=False)

    def close(self) -> None:
        """Give back what a session holds that was never run, or is over."""
        self._turns.close(None)
        self._upstream.abort()
        give(self._watch.slots)

    # The caller's events.

    def _from_caller(self, caller: CallerSocket) -> None:
        while (text := caller.receive()) is not None:
            if self._ended:
                continue  # its close frame is waited for
            self._last = self._watch.clock.monotonic()
            try:
                event = self._events.read(text)
            except GatewayError as error:
                self._tell(self._events.error(error, (error.details or {}).get("event_id", "")))
                continue
            try:
                self._send(event)
            except GatewayError as error:
                self._turns.settings.refused(event.id)
                self._refuse(error, event)

    def _send(self, event: ClientEvent) -> None:
        """Reserve what an event may bring about, then let the provider have it."""
        turns = self._turns
        turns.conversation.add(event)
        turns.settings.asked(event)
        if event.begins == "response":
            turns.ask(event.id, event.most_output)
        elif event.begins == "sound":
            turns.listen(event.sound_bytes)
        else:
            turns.grow()
        self._upstream.send(event.text)

    def _refuse(self, error: GatewayError, event: ClientEvent) -> None:
        """Tell the caller why an event had no effect; what will not pass ends the session."""
        if isinstance(error, FATAL):
            self._end(error, event.id)
            return
        now = self._watch.clock.monotonic()
        if event.begins == "sound":
            if now - self._complained < COMPLAIN_S:
                return
            self._complained = now
        self._tell(self._events.error(error, event.id))

    # The provider's events.

    def _from_upstream(self) -> None:
        try:
            while (event := self._upstream.receive()) is not None:
                self._pass_on(event)
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
        self._upstream.abort()  # nobody reads it any more, and the caller's greenlet may wait until it takes something

    def _pass_on(self, event: ServerEvent) -> None:
        """Count an event, then let the caller have it: what it cost is durable by then."""
        failure: GatewayError | None = None
        try:
            self._turns.take(event)
        except Unavailable as error:
            self._end(error)
            return
        except GatewayError as error:
            failure = error  # it is counted, and the session has no more to spend
        if self._gone and event.kind == "started":
            # Asked for just before the caller left. An upstream may take it only when it is read on.
            spawn(self._cancel, event.id)
        if event.text:
            self._tell(event.text)
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
            self._lose(GONE, FAULT if code in (NO_CODE, LOST) else code)
            return
        self._ended = True
        if self._caller is not None:
            self._caller.close(code, reason)
            self._caller_reads_on()

    # The clock.

    def _look(self) -> None:
        pinged = self._began
        sides = [(self._caller, [0, self._began]), (self._upstream, [0, self._began])]
        while not self._ended:
            pause(LOOK_S)
            now = self._watch.clock.monotonic()
            try:
                self._check(now)
                if now - pinged >= PING_S:
                    pinged = now
                    self._ping()
            except (Unavailable, SocketClosed):
                continue  # what cannot be asked is not denied; nothing is admitted meanwhile
            except GatewayError as error:
                self._end(error)
            for side, known in sides:
                if side is None or side.heard != known[0]:
                    known[:] = [0 if side is None else side.heard, now]
                elif now - known[1] > SILENT_S:
                    self._silent(side)

    def _silent(self, side: SessionLink | UpstreamSession) -> None:
        """Nothing came from a side for so long that not even pings are answered."""
        if side is self._upstream:
            self._lose("The provider does not answer any more.")
        else:
            self._end(None, close_code=GOING_AWAY, reason="Nothing was heard.")

    def _ping(self) -> None:
        if self._caller is not None:
            self._caller.ping()
        self._upstream.ping()

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
        """The caller, who may still use the place. What ended them, or forbids it; Unavailable."""
        caller = self._watch.caller()
        if caller is not self._turns.books.context.caller:
            self._watch.permits(caller)
        return caller

    # The end.

    def _lose(self, message: str, close_code: int = FAULT) -> None:
        """The provider is gone."""
        if not self._ended:
            self._error = StreamTruncated(message)
            self._end(self._error, close_code=close_code)

    def _leave(self) -> None:
        self._end(None, close_code=GOING_AWAY, reason="The server is restarting; connect again.")

    def _end(self, error: GatewayError | None, event: str = "", close_code: int = POLICY, reason: str = "") -> None:
        """Tell the caller that the session ends, and why; once."""
        if self._ended:
            return
        self._ended = True
        if error is not None:
            self._error = self._error or error
            self._tell(self._events.error(error, event))
            fault = error.status >= 500 and close_code == POLICY
            close_code = FAULT if fault else close_code
            reason = error.code
        if self._caller is not None:
            self._caller.close(close_code, reason)
            self._caller_reads_on()

    def _caller_reads_on(self) -> None:
        """The caller has a moment to read what ends it and to answer; then it is read no more, which ends `run`."""
        if self._caller is not None:
            later(ANSWER_S, self._caller.abort)

    def _tell(self, text: str) -> None:
        if self._gone or self._caller is None:
            return
        try:
            self._caller.send(text)
        except SocketClosed:
            self._gone = True  # the connection's own greenlet notices it too

    def _drain(self) -> None:
        """Nobody waits for what is in progress: end it, so that the provider tells what it cost."""
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


def give(slots: tuple[HeldSlots, ...]) -> None:
    """Give back a caller's share of sessions at once; a second time nothing."""
    for held in slots:
        held.give()
