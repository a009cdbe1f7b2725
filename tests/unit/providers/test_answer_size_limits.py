"""Provider answers are bounded before they are decoded, because a custom provider may be run by any customer."""

import sys
import time
from collections.abc import Callable

import orjson
import pytest
from support.replies import MemoryReply

from gateway.engine import answer_serialization as codec
from gateway.engine.answer_serialization import flatten
from gateway.errors import UpstreamFailed
from gateway.neutral import json_weight
from gateway.neutral.chat import ChatResult, Choice
from gateway.neutral.embeddings import EmbeddingsResult
from gateway.neutral.parts import Text, ToolCall
from gateway.neutral.usage import Usage
from gateway.providers import upstream_calls
from gateway.providers.alibaba import AlibabaVideos
from gateway.providers.answer_checks import MAX_PARTS, check_parts
from gateway.providers.atlascloud import AtlasCloudVideos
from gateway.providers.bytedance import ByteDanceVideos
from gateway.providers.cohere.embeddings import CohereEmbeddings
from gateway.providers.failures import MAX_ERROR_BYTES, read_refusal
from gateway.providers.google.embeddings import GoogleEmbeddings
from gateway.providers.media_codecs import MAX_ANSWER_BYTES, JobReader
from gateway.providers.minimax import MiniMaxVideos
from gateway.providers.openai.embeddings import OpenAIEmbeddings
from gateway.providers.openai.videos import OpenAIVideos
from gateway.providers.sse import THREAD_BYTES, EventReader, LongEvent
from gateway.providers.vectors import MAX_VECTOR_BYTES
from gateway.providers.xai import XaiVideos
from gateway.surfaces.openai import embeddings


class Never:
    def read(self, reply: object, relayed: bool) -> None:
        raise AssertionError("it was decoded")


MANY = b'{"choices":[' + b"[]," * MAX_PARTS + b"[]]}"


def test_an_answer_of_too_many_parts_is_not_decoded() -> None:
    """22 MB of small objects held the interpreter for 1.5 s."""
    with pytest.raises(UpstreamFailed, match="parts"):
        upstream_calls.read_answer(Never(), MemoryReply(MANY, headers={}), False)  # type: ignore[arg-type]


class Calls:
    """Reads an answer of so many calls."""

    def __init__(self, count: int) -> None:
        self.count = count

    def read(self, reply: object, relayed: bool) -> ChatResult:
        return ChatResult((Choice((ToolCall("c", "f", "{}"),) * self.count, "tool_calls"),), Usage())


def test_an_answer_of_too_many_calls_is_refused() -> None:
    """100,000 of them were written for the caller in 0.4 s of the event loop."""
    body = bytes(json_weight.LARGE_WITHOUT_PARTS)
    assert upstream_calls.read_answer(Calls(upstream_calls.MAX_PARTS), MemoryReply(body, headers={}), False).choices  # type: ignore[arg-type]
    with pytest.raises(UpstreamFailed, match="calls"):
        upstream_calls.read_answer(Calls(upstream_calls.MAX_PARTS + 1), MemoryReply(body, headers={}), False)  # type: ignore[arg-type]


class Choices:
    """Reads an answer of so many choices."""

    def __init__(self, count: int) -> None:
        self.count = count

    def read(self, reply: object, relayed: bool) -> ChatResult:
        return ChatResult((Choice((Text("x"),), "stop"),) * self.count, Usage())


@pytest.mark.parametrize("relayed", [True, False])
def test_more_choices_than_can_be_requested_are_refused(relayed: bool) -> None:
    """80,000 of them under 128 numbers were passed on in 0.09 s of the event loop."""
    body = bytes(json_weight.LARGE_WITHOUT_PARTS)
    assert upstream_calls.read_answer(Choices(128), MemoryReply(body, headers={}), relayed).choices  # type: ignore[arg-type]
    with pytest.raises(UpstreamFailed, match="128 answers"):
        upstream_calls.read_answer(Choices(129), MemoryReply(body, headers={}), relayed)  # type: ignore[arg-type]


def test_the_likeliest_of_each_token_and_a_text_full_of_code_are_read() -> None:
    one = {"token": "a", "logprob": -0.5, "bytes": [97]}
    check_parts(orjson.dumps({"content": [{**one, "top_logprobs": [one] * 20}] * 5_000}))
    check_parts(orjson.dumps({"content": "if (a[0]) { b({}); }" * 200_000}))


def test_an_event_of_too_many_parts_is_not_decoded() -> None:
    wire, reader, last = b"data: " + MANY, EventReader(), EventReader()
    for one in (reader, last):
        assert one.feed(wire[:9]) == []
        with pytest.raises(LongEvent):
            one.feed(wire[9 : THREAD_BYTES + 1])
    with pytest.raises(UpstreamFailed, match="parts"):
        reader.feed(wire[THREAD_BYTES + 1 :] + b"\n\n")
    last.feed(wire[THREAD_BYTES + 1 :])
    with pytest.raises(UpstreamFailed, match="parts"):
        last.finish()


def test_the_read_part_of_a_refusal_is_bounded() -> None:
    reply = MemoryReply(MANY[: MAX_ERROR_BYTES + 1], AssertionError("it was read on"), headers={})
    assert len(read_refusal(reply)) == MAX_ERROR_BYTES  # type: ignore[arg-type]


FILMS = (AlibabaVideos, AtlasCloudVideos, ByteDanceVideos, MiniMaxVideos, OpenAIVideos, XaiVideos)


@pytest.mark.parametrize("codec", [made() for made in FILMS], ids=lambda codec: codec.dialect)
def test_the_read_part_of_a_video_status_is_bounded(codec: JobReader) -> None:
    """The gateway polls hundreds of videos at once."""
    reply = MemoryReply(*[b" " * MAX_ANSWER_BYTES] * 2, AssertionError("it was read on"), headers={})
    with pytest.raises(UpstreamFailed) as refused:
        codec.read_status(reply, None)  # type: ignore[arg-type]
    assert refused.value.code == "response_too_large"


# A million numbers, as answers of each format have them.
NUMBERS = [number / 7919 for number in range(1_000)]
ANSWERS: dict[str, tuple[object, object]] = {
    "openai": (OpenAIEmbeddings(), {"data": [{"index": n, "embedding": NUMBERS} for n in range(1_000)]}),
    "google": (GoogleEmbeddings(lambda *_: None), {"embeddings": [{"values": NUMBERS}] * 1_000}),
    "vertex": (GoogleEmbeddings(lambda *_: None), {"predictions": [{"embeddings": {"values": NUMBERS}}] * 1_000}),
    "cohere": (CohereEmbeddings(), {"embeddings": {"float": [NUMBERS] * 1_000}}),
}


JOIN = "join"  # of a megabyte or more: it lets others have their turn


def longest_call(work: Callable[[], object], leaves: str = "") -> float:
    """Return the CPU seconds of the longest C call in `work`, which blocks all others; `leaves` does not count."""
    longest = began = 0.0

    def note(frame: object, event: str, called: object) -> None:
        nonlocal longest, began
        if event == "c_call":
            began = time.thread_time()
        elif event == "c_return" and getattr(called, "__name__", "") != leaves:
            longest = max(longest, time.thread_time() - began)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return longest


def at_once(work: Callable[[], object]) -> float:
    """Seconds of CPU time of the longest call, of several rounds the least."""
    return min(longest_call(work) for _ in range(3))


def stays_below(most_s: float, work: Callable[[], object], leaves: str = "") -> bool:
    """Whether the longest call can take less: other work on the machine makes single rounds longer, none shorter."""
    return any(longest_call(work, leaves) < most_s for _ in range(20))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ANSWERS)
def test_many_vectors_are_read_one_by_one(kind: str) -> None:
    """Three million numbers in one call of the decoder held every other request of the worker for 0.2 s."""
    reader, answer = ANSWERS[kind]
    body = orjson.dumps(answer)
    read = reader.read(MemoryReply(body, headers={}), False)  # type: ignore[attr-defined]
    assert [list(vector) for vector in read.vectors] == [NUMBERS] * 1_000
    half = at_once(lambda: orjson.loads(body)) / 2
    assert stays_below(half, lambda: reader.read(MemoryReply(body, headers={}), False))  # type: ignore[attr-defined]


@pytest.mark.slow
def test_many_vectors_are_written_one_by_one() -> None:
    vectors = [NUMBERS] * 1_000
    whole = at_once(lambda: orjson.dumps(vectors))
    body = {"model": "m"}
    assert stays_below(whole / 2, lambda: embeddings._write(body, vectors, "float"), JOIN)
    flat = flatten(EmbeddingsResult(vectors))
    assert stays_below(whole / 2, lambda: codec._write_vectors(flat, vectors), JOIN)
    assert stays_below(whole, lambda: codec._write_vectors(flat, vectors))  # each is written before they are joined
    assert orjson.loads(codec.write_result(EmbeddingsResult(vectors))) == flat


@pytest.mark.parametrize("vector", [[0.125] * (MAX_VECTOR_BYTES // 6 + 1), ["a"], [None], {}, "", []])
def test_invalid_vectors_are_the_providers_fault(vector: object) -> None:
    with pytest.raises(UpstreamFailed):
        OpenAIEmbeddings().read(MemoryReply(orjson.dumps({"data": [{"embedding": vector}]}), headers={}), False)


@pytest.mark.parametrize("part", [Text(5), Text({"a": 1}), Text(None), ToolCall("c", "f", ["x"])])  # type: ignore[arg-type]
def test_a_text_of_another_type_is_a_provider_error(part: Text | ToolCall) -> None:
    """It used to be an internal fault of the gateway, without a fallback to another provider."""

    class Odd:
        def read(self, reply: object, relayed: bool) -> ChatResult:
            return ChatResult((Choice((part,), "stop"),), Usage())

    with pytest.raises(UpstreamFailed):
        upstream_calls.read_answer(Odd(), MemoryReply(b"{}", headers={}), False)  # type: ignore[arg-type]
