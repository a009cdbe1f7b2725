"""Records the answers of paid operations while they are sent, the same for every surface."""

import logging
from collections.abc import Generator, Iterator

import orjson

from gateway.engine.payload_collection import Payload
from gateway.errors import Cancelled, GatewayError
from gateway.surfaces import http_responses
from gateway.surfaces.http import ErrorFormat, Inbound, Outbound

log = logging.getLogger("gateway")


def keep(inbound: Inbound, payload: Payload, outbound: Outbound, errors: ErrorFormat) -> Outbound:
    """Record the response durably, together with its settlement, before its last bytes leave. Raise 503 when that takes
    too long."""
    body = outbound.body
    status = outbound.status
    if not isinstance(body, bytes):
        return Outbound(status, outbound.headers, CapturedStream(body, status, payload, errors, inbound.shown_id))
    payload.add(body)
    try:
        payload.finish(status)
    except GatewayError as error:
        return http_responses.error_reply(error, errors, inbound.shown_id)
    return outbound


def leave(inbound: Inbound) -> None:
    """Release the recording of a caller who disconnected before there was a response. Never raises."""
    if inbound.payload is not None:
        _end(inbound.payload, Cancelled.status)


class CapturedStream:
    """A stream that is recorded while it is sent. At its end, the last chunk waits for the settlement."""

    def __init__(
        self, pieces: Iterator[bytes], status: int, payload: Payload, errors: ErrorFormat, request_id: str
    ) -> None:
        self._pieces = pieces
        self._status = status
        self._payload = payload
        self._errors = errors
        self._request_id = request_id
        self._copies = self._copy()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._copies)

    def close(self) -> None:
        """Keep the part of the stream that was sent."""
        self._copies.close()
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()
        _end(self._payload, self._status)

    def _copy(self) -> Generator[bytes, None, None]:
        pieces = iter(self._pieces)
        payload = self._payload
        for piece in pieces:
            payload.add(piece)
            # The settlement is complete, so waiting for the next chunk to detect the end delays no caller.
            while payload.held:
                following = next(pieces, None)
                if following is None:
                    try:
                        payload.finish(self._status)
                    except GatewayError as error:
                        piece = self._write_error(error)
                    break
                yield piece
                piece = following
                payload.add(piece)
            yield piece

    def _write_error(self, error: GatewayError) -> bytes:
        if self._errors.frame is not None:
            return self._errors.frame(error, self._request_id)
        body = self._errors.body(error, self._request_id)
        return b"event: error\ndata: %b\n\n" % orjson.dumps(body)


def _end(payload: Payload, status: int) -> None:
    try:
        payload.end(status)
    except GatewayError as error:
        log.error("a usage record is left to crash recovery: %s", error.message)
