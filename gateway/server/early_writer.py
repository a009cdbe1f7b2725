"""Writes JSON answers that take long with blanks before them."""

from collections.abc import Callable, Iterable
from typing import Any

import gevent

from gateway.errors import GatewayError
from gateway.runtime import early_answers
from gateway.server.response_writer import ExcInfo, ResponseWriter
from gateway.server.worker_state import ClientGone
from gateway.surfaces.web.http import Outbound

BLANK = b" "


class EarlyWriter(ResponseWriter):
    """The response to one request. If no answer is ready `seconds` after its handler called `begin`, it sends the head,
    and then a blank after every further `seconds`. The status of the head remains, also if an error follows."""

    seconds: float = 0.0
    _owner: Any = None
    _timer: gevent.Greenlet | None = None
    _sending: bool = False  # whether the timer is sending a blank

    def __post_init__(self) -> None:
        self._owner = gevent.getcurrent()
        early_answers.offer(self if self._modern and not self._bare else None)

    def begin(self, headers: early_answers.Headers) -> None:
        if self._timer is None and not self.begun:
            self._timer = gevent.spawn_later(self.seconds, self._send_blanks, headers)

    def start(
        self, status: str, headers: early_answers.Headers, exc_info: ExcInfo | None = None
    ) -> Callable[[bytes], None]:
        """Implement start_response. After blanks the status and the headers of the application come too late."""
        self._end_blanks()
        if self.begun and exc_info is None:
            return self.write
        return super().start(status, headers, exc_info)

    def answer(self, outbound: Outbound) -> None:
        self._end_blanks()
        if not self.begun:
            super().answer(outbound)
            return
        body = outbound.body
        self._send_items([body] if isinstance(body, bytes) else body)

    def deliver(self, result: Iterable[bytes]) -> None:
        self._end_blanks()
        super().deliver(result)

    def fail(self, error: GatewayError) -> None:
        self._end_blanks()
        super().fail(error)

    def _end_blanks(self) -> None:
        early_answers.offer(None)
        timer = self._timer
        if timer is None:
            return
        self._timer = None
        if self._sending:
            timer.join()  # half a chunk would break the framing of what follows
        timer.kill()

    def _send_blanks(self, headers: early_answers.Headers) -> None:
        super().start("200 OK", headers)
        try:
            while self._timer is not None and not self._owner.dead:
                self._sending = True
                self.write(BLANK)
                self._sending = False
                gevent.sleep(self.seconds)
        except ClientGone:
            return
