"""Timeout checks of a session over WebSockets: its own conditions, pings, and links from which nothing is received."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from gateway.clock import Clock
from gateway.errors import GatewayError, Unavailable
from gateway.runtime.threads import pause
from gateway.transport.handshakes import SocketClosed

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
