"""Streams: every failure is reported in the caller's dialect, and no upstream call continues after it."""

from collections.abc import Iterator

import pytest

from gateway.errors import GatewayError, UpstreamFailed
from gateway.neutral.events import Batch, TextDelta
from gateway.surfaces.web.http_responses import json_reply, stream_reply, write_frames


def body_of(error: GatewayError) -> bytes:
    return f"{error.code}: {error.message}".encode()


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (UpstreamFailed("It broke.", code="broke"), b"broke: It broke."),
        (TypeError("a mistake of ours"), b"internal_error: An internal error occurred; "),
    ],
)
@pytest.mark.parametrize("within", ["write", "batches"])
def test_an_error_is_the_end_of_a_stream_and_never_a_cut(
    caplog: pytest.LogCaptureFixture, broken: Exception, said: bytes, within: str
) -> None:
    closed: list[bool] = []

    def batches() -> Iterator[Batch]:
        try:
            yield [TextDelta("a")]
            if within == "batches":
                raise broken
            yield [TextDelta("b")]
        finally:
            closed.append(True)

    def write(batch: Batch) -> bytes:
        event = batch[0]
        assert isinstance(event, TextDelta)
        if event.text == "b":
            raise broken
        return event.text.encode()

    first, last = write_frames(batches(), write, body_of)
    assert first == b"a" and last.startswith(said) and closed == [True]
    assert ("a mistake of ours" in caplog.text) == isinstance(broken, TypeError)


def test_answers_are_kept_by_no_cache_and_differ_by_the_key() -> None:
    for answer in (json_reply({}), stream_reply(iter(()))):
        headers = dict(answer.headers)
        assert {"no-store", "no-transform"} <= set(headers["Cache-Control"].split(", "))
        assert {"Authorization", "x-api-key", "x-goog-api-key"} <= set(headers["Vary"].split(", "))


def test_a_stream_is_of_events_and_not_buffered_by_proxies() -> None:
    headers = dict(stream_reply(iter(())).headers)
    assert headers["Content-Type"] == "text/event-stream; charset=utf-8" and headers["X-Accel-Buffering"] == "no"
