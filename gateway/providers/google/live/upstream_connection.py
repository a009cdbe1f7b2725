"""One connection to the Live API: opened, set up, and read by a greenlet of its own."""

from collections.abc import Callable
from contextlib import suppress
from queue import Full, Queue
from typing import Any

import orjson

from gateway.errors import GatewayError, UpstreamTimeout
from gateway.providers.answer_checks import check_parts, read_object
from gateway.providers.openers import SessionLink
from gateway.runtime.threads import compute_if, later, spawn
from gateway.transport.handshakes import LOST, HandshakeRefused, SocketClosed

Json = dict[str, Any]
LOOK_S = 5.0
LARGE = 1 << 18  # bytes from which a message is read in a thread
INVALID = 1007
POLICY = 1008
FAULT = 1011
BUSY = 1013
# How the API tells at the end of a connection what HTTP would tell by a status. Words decide where a code says little:
# a fault (1011) is also what a quota that is used up, or too many sessions at once, ends with.
STATUSES = {INVALID: 400, POLICY: 403, BUSY: 503, LOST: 502}
WORDS = (("quota", 429), ("resource_exhausted", 429), ("too many", 429), ("not found", 404), ("api key", 401))

# What a session reads: an event of its caller (text), or a message of a connection; None as a message is its end.
Inbox = Queue[tuple["LiveConnection | None", Json | str | GatewayError | None]]


class LiveConnection:
    """A connection that is set up, with its `link`."""

    def __init__(self, link: SessionLink) -> None:
        self.link = link
        self._over = False

    def abort(self) -> None:
        """End it; nothing of it is read any more."""
        self._over = True
        self.link.abort()

    def read_into(self, inbox: Inbox) -> None:
        """Put what comes into `inbox` from now on. While that is full nothing is read, and the upstream waits."""
        spawn(self._read, inbox)

    def send(self, message: Json) -> None:
        """SocketClosed."""
        self.link.send(orjson.dumps(message).decode())

    def _read(self, inbox: Inbox) -> None:
        try:
            while (text := self.link.receive()) is not None:
                self._put(inbox, _decode(text))
        except GatewayError as error:
            self._put(inbox, error)
        self._put(inbox, None)

    def _put(self, inbox: Inbox, item: "Json | GatewayError | None") -> None:
        """Waits as long as somebody will read it."""
        while not self._over:
            try:
                inbox.put((self, item), timeout=LOOK_S)
                return
            except Full:
                continue


def connect(dial: Callable[[float], SessionLink], setup: Json, seconds: float) -> LiveConnection:
    """A connection that took its setup, within so many seconds. HandshakeRefused, UpstreamTimeout, UpstreamFailed."""
    link = dial(seconds)
    late: list[bool] = []

    def give_up() -> None:
        late.append(True)
        link.abort()

    guard = later(seconds, give_up)
    try:
        with suppress(SocketClosed):  # then it tells why
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
    """The end of a connection as an answer of HTTP, so that it is judged like any other."""
    said = reason.lower()
    status = next((status for word, status in WORDS if word in said), STATUSES.get(code, 500))
    body = {"error": {"code": status, "message": reason or "The provider closed the connection."}}
    return HandshakeRefused(status, {"content-type": "application/json"}, orjson.dumps(body))


def not_callers(refused: HandshakeRefused) -> HandshakeRefused:
    """The same where what was refused is nothing that the caller chose."""
    if refused.status == STATUSES[INVALID]:
        refused.status = 502
    else:
        refused.status = refused.status
    return refused


def _decode(text: str) -> Json:
    """A message. UpstreamFailed for what is none, or has too many parts."""
    return compute_if(len(text) > LARGE, _read, text)


def _read(text: str) -> Json:
    raw = text.encode()
    check_parts(raw)
    return read_object(raw)
