"""A connection to the Live API, which is read by a separate greenlet."""

from collections.abc import Callable
from contextlib import suppress
from queue import Full, Queue
from typing import Any

import orjson

from gateway.errors import GatewayError, UpstreamTimeout
from gateway.providers.answer_checks import check_parts, read_object
from gateway.providers.upstream_calls import SessionLink
from gateway.runtime.threads import compute_if, later, spawn
from gateway.transport.websocket_channels import FAULT, LOST, HandshakeRefused, SocketClosed

Json = dict[str, Any]
CHECK_INTERVAL_S = 5.0
LARGE = 1 << 18  # bytes from which a message is read in a thread
INVALID = 1007
POLICY = 1008
BUSY = 1013
# HTTP statuses for the close codes of the API. Words of the reason take precedence: the API also closes with 1011
# (internal error) for exhausted quotas and for too many concurrent sessions.
STATUSES = {INVALID: 400, POLICY: 403, BUSY: 503, LOST: 502}
ERROR_STATUSES = (("quota", 429), ("resource_exhausted", 429), ("too many", 429), ("not found", 404), ("api key", 401))

# Items of a session: an event of the caller (text), or a message of a connection; None is the end of the connection.
Inbox = Queue[tuple["LiveConnection | None", Json | str | GatewayError | None]]


class LiveConnection:
    """A connection after its setup."""

    def __init__(self, link: SessionLink) -> None:
        self.link = link
        self._over = False

    def abort(self) -> None:
        """Close the connection and stop reading from it."""
        self._over = True
        self.link.abort()

    def read_into(self, inbox: Inbox) -> None:
        """Start to put messages into `inbox`. A full inbox pauses the reading, which slows the upstream down."""
        spawn(self._read, inbox)

    def send(self, message: Json) -> None:
        """Send a message. SocketClosed if the connection is closed."""
        self.link.send(orjson.dumps(message).decode())

    def _read(self, inbox: Inbox) -> None:
        try:
            while self._read_next(inbox):
                pass
        except GatewayError as error:
            self._put(inbox, error)
        self._put(inbox, None)

    def _read_next(self, inbox: Inbox) -> bool:
        """Read the next message, which nothing holds during the next wait; returns whether the connection continues."""
        text = self.link.receive()
        if text is not None:
            self._put(inbox, _decode(text))
        return text is not None

    def _put(self, inbox: Inbox, item: "Json | GatewayError | None") -> None:
        """Put an item into `inbox`, and wait for space until the connection is closed."""
        while not self._over:
            try:
                inbox.put((self, item), timeout=CHECK_INTERVAL_S)
                return
            except Full:
                continue


def connect(dial: Callable[[float], SessionLink], setup: Json, seconds: float) -> LiveConnection:
    """Open a connection and complete its setup within `seconds`.

    HandshakeRefused if the provider refuses it, UpstreamTimeout, UpstreamFailed for an invalid message.
    """
    link = dial(seconds)
    late: list[bool] = []

    def give_up() -> None:
        late.append(True)
        link.abort()

    guard = later(seconds, give_up)
    try:
        with suppress(SocketClosed):  # `receive` then reports the reason
            link.send(orjson.dumps({"setup": setup}).decode())
        while (text := link.receive()) is not None:
            message = _decode(text)
            if "setupComplete" in message:
                return LiveConnection(link)
            if "error" in message:
                raise refusal(FAULT, str(message["error"])[:2048])
    except BaseException:
        link.abort()
        raise
    finally:
        guard.kill(block=False)
    link.abort()
    if late:
        raise UpstreamTimeout("The provider did not set up the session in time.")
    raise refusal(link.code, link.reason)


def refusal(code: int, reason: str) -> HandshakeRefused:
    """Return the end of a connection as an HTTP error, which is classified like any other."""
    lowered = reason.lower()
    status = next((status for word, status in ERROR_STATUSES if word in lowered), STATUSES.get(code, 500))
    body = {"error": {"code": status, "message": reason or "The provider closed the connection."}}
    return HandshakeRefused(status, {"content-type": "application/json"}, orjson.dumps(body))


def not_callers(refused: HandshakeRefused) -> HandshakeRefused:
    """Make a refusal of an invalid setup a failure of the provider, for a setup that the caller did not choose."""
    if refused.status == STATUSES[INVALID]:
        refused.status = 502
    return refused


def _decode(text: str) -> Json:
    """Return a parsed message. UpstreamFailed for text that is not a JSON object, or has too many parts."""
    return compute_if(len(text) > LARGE, _read, text)


def _read(text: str) -> Json:
    raw = text.encode()
    check_parts(raw)
    return read_object(raw)
