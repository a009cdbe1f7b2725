import pytest

from gateway.engine.answer_serialization import read_batch, read_result, write_batch, write_result
from gateway.errors import UpstreamFailed
from gateway.neutral.chat import ChatResult, Choice, Native
from gateway.neutral.embeddings import EmbeddingsResult
from gateway.neutral.events import (
    BlockDone,
    Failed,
    Finished,
    Heartbeat,
    NativeChunk,
    Notice,
    PartFound,
    Progress,
    ReasoningDelta,
    RefusalDelta,
    SourceFound,
    Started,
    TextDelta,
    ToolCallDelta,
)
from gateway.neutral.parts import Image, Media, Reasoning, Refusal, Source, Text, ToolCall, VendorPart
from gateway.neutral.structured import RerankResult, StructuredResult
from gateway.neutral.usage import Usage

PARTS = (
    Text("Hello", sources=(Source("https://a.example", "A", start=0, end=5),), signature="s", vendor="google"),
    Refusal("No."),
    Reasoning("thinking", "sig", "sealed", "anthropic", "rs_1", True),
    ToolCall("call_1", "add", '{"$": 1}', custom=True),
    Image(Media("image/png", data="AAAA")),
    VendorPart("anthropic", "server_tool_use", {"$": "Text", "input": {"q": [1, None, {"$": "x"}]}}),
)
RESULT = ChatResult(
    (Choice(PARTS, "tool_calls"), Choice((), "stop", "END")),
    Usage(input=3, output=4, basis="estimated"),
    model="m-1",
    upstream_id="x",
    warnings=("left out",),
    native=Native("openai", {"choices": [{"$": "Choice", "message": {"content": "Hé"}}]}),
)
BATCH = [
    Started("m", "id", Usage(input=3)),
    TextDelta("Hé", 1, 2, "s", "google"),
    ReasoningDelta("t", "sig", "sealed", "anthropic", summary=True),
    ToolCallDelta(3, "{}", "call", "add", custom=True),
    RefusalDelta("no"),
    SourceFound(Source("https://a.example")),
    PartFound(Image(Media(url="https://a.example/i.png"))),
    BlockDone(1),
    Notice("careful", "top_k"),
    Progress(Usage(output=1)),
    NativeChunk("openai", {"choices": [{"delta": {"content": "x"}, "$": "Finished"}]}, True, 1),
    NativeChunk("openai", {}, True, 2, ready=[b'[{"delta":{"content":"x"}}]', '[{"delta":{"content":"é"}}]'.encode()]),
    Finished("length", Usage(output=9), reasons=("stop", "length")),
]


def test_a_whole_answer_reads_back_as_it_was():
    assert read_result(write_result(RESULT)) == RESULT
    embedded = EmbeddingsResult([[0.5, -1.0], "AAAA"], usage=Usage(input=3))
    assert read_result(write_result(embedded)) == embedded
    moderated = StructuredResult({"results": [{"$": "Text", "flagged": False}]}, usage=Usage(input=3))
    assert read_result(write_result(moderated)) == moderated
    ranked = read_result(write_result(RerankResult(((1, 0.9), (0, 0.2)), usage=Usage(searches=1))))
    assert (dict(ranked.scores), ranked.usage) == ({1: 0.9, 0: 0.2}, Usage(searches=1))


def test_a_batch_reads_back_as_it_was_without_its_silence():
    assert read_batch(write_batch([*BATCH[:3], Heartbeat(), *BATCH[3:]])) == BATCH


def test_the_usage_so_far_of_a_stream_in_progress_is_not_stored():
    batch = [Started("m", "id", Usage(input=3), used=lambda: Usage(input=3, output=1)), TextDelta("Hé")]
    read = read_batch(write_batch(batch))
    assert read == batch and read[0].used is None


def test_no_type_is_confused_with_another():
    assert write_result(ChatResult((Choice((Text("x"),), "stop"),))) != write_result(
        ChatResult((Choice((Refusal("x"),), "stop"),))
    )


def test_values_that_json_cannot_represent_are_refused():
    with pytest.raises(TypeError):
        write_result(ChatResult((), native=Native("openai", {"x": object()})))
    with pytest.raises(TypeError):
        write_batch([Failed(UpstreamFailed("broken"))])


def test_data_of_another_release_is_a_plain_error():
    with pytest.raises(KeyError):
        read_batch(b'[{"$": "Imagined"}]')
