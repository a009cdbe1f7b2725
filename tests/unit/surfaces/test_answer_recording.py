from collections.abc import Iterator

import orjson
import pytest

from gateway.errors import GatewayError, Unavailable
from gateway.surfaces.web import operation_guard as operation_guard_module
from gateway.surfaces.web.http import Inbound, Outbound
from gateway.surfaces.web.http_responses import OPENAI

SENT = [b"one ", b"two ", b"three"]


class Kept:
    """A payload as the recording uses it; settled after `settled_after` pieces."""

    def __init__(self, settled_after: int = 99, error: GatewayError | None = None) -> None:
        self.settled_after, self.error = settled_after, error
        self.pieces: list[bytes] = []
        self.ends: list[int] = []
        self.closed = False

    @property
    def held(self) -> bool:
        return len(self.pieces) >= self.settled_after and not self.ends

    def add(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def finish(self, status: int) -> None:
        self.end(status)
        if self.error is not None:
            raise self.error

    def end(self, status: int) -> None:
        self.ends.append(status)

    def stream(self) -> Iterator[bytes]:
        try:
            yield from SENT
        finally:
            self.closed = True


def keep(payload: Kept, body: bytes | Iterator[bytes]) -> Outbound:
    inbound = Inbound("POST", "/v1/x", {}, payload=payload)
    return operation_guard_module.keep(inbound, inbound.payload, Outbound(200, [], body), OPENAI)


def test_a_whole_answer_is_finished_before_it_is_given() -> None:
    payload = Kept()
    assert keep(payload, b"answer").body == b"answer"
    assert payload.pieces == [b"answer"] and payload.ends == [200]


def test_a_whole_answer_that_is_not_durable_in_time_is_an_error_of_its_dialect() -> None:
    outbound = keep(Kept(error=Unavailable("late")), b"answer")
    assert outbound.status == 503 and orjson.loads(outbound.body)["error"]["message"] == "late"


@pytest.mark.parametrize("settled_after", [1, 2, 3, 99])
def test_every_piece_of_a_stream_passes_once_whenever_it_is_settled(settled_after: int) -> None:
    payload = Kept(settled_after)
    body = keep(payload, payload.stream()).body
    assert list(body) == SENT == payload.pieces
    body.close()
    assert payload.ends[0] == 200 and payload.closed


def test_the_last_piece_waits_for_the_settlement_and_no_other_does() -> None:
    payload = Kept(settled_after=2)
    body = keep(payload, payload.stream()).body
    assert [next(body), next(body)] == SENT[:2] and payload.ends == []
    assert next(body) == SENT[2] and payload.ends == [200]


def test_a_stream_that_is_not_durable_in_time_ends_in_an_error_event() -> None:
    payload = Kept(settled_after=3, error=Unavailable("late"))
    *passed, last = list(keep(payload, payload.stream()).body)
    assert passed == SENT[:2] and last.startswith(b"event: error\ndata: {") and b"late" in last


@pytest.mark.parametrize("read", [0, 1])
def test_a_stream_that_is_left_is_closed_and_ended(read: int) -> None:
    payload = Kept()
    body = keep(payload, payload.stream()).body
    for _ in range(read):
        next(body)
    body.close()
    assert payload.ends == [200] and payload.pieces == SENT[:read] and payload.closed == bool(read)


def test_a_disconnect_before_the_response_ends_the_payload() -> None:
    payload = Kept()
    operation_guard_module.leave(Inbound("POST", "/v1/x", {}, payload=payload))
    assert payload.ends == [499]
    operation_guard_module.leave(Inbound("POST", "/v1/x", {}))
