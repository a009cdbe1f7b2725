import base64
import json
from collections.abc import Callable, Iterator

import pytest
from fakes.bedrock import ACCESS, API_KEY, Answer, FakeBedrock, encode_frame
from support.replies import MemoryReply

from gateway.catalogue.entries import Mapping, Provider
from gateway.clock import Clock
from gateway.configuration.settings import Security, Timeouts
from gateway.errors import (
    GatewayError,
    InvalidRequest,
    StreamTruncated,
    UpstreamFailed,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRefused,
)
from gateway.neutral.chat import ChatRequest, ChatResult, Conversation, Requirements
from gateway.neutral.events import Failed, Finished, Heartbeat, Started, ToolCallDelta, collect
from gateway.neutral.parts import Message, Reasoning, Source, SourceRange, Text, ToolCall
from gateway.neutral.usage import Usage
from gateway.providers.bedrock.converse import BedrockConverse
from gateway.providers.bedrock.reply import read_source
from gateway.providers.protocol import Credential, Target
from gateway.providers.registry import chat_wire
from gateway.providers.upstream import Upstreams
from gateway.providers.upstream_calls import Network
from gateway.transport import Transport

PROTOCOL = BedrockConverse(Clock())
TALK = Conversation((Message("user", (Text("hi"),)),))
FULL = Answer(
    "Hello ✓ there.",
    tools=(("look", '{"x": "y"}'), ("see", "{}")),
    reasoning=("Let me think.", "sig+/=="),
    sealed=bytes(range(50)),
)


@pytest.fixture
def upstream() -> Iterator[FakeBedrock]:
    with FakeBedrock() as server:
        yield server


@pytest.fixture
def upstreams() -> Iterator[Upstreams]:
    transport = Transport(Timeouts(5, 5, 5, 1, 2, 0.2), Security(True, (), ()))
    yield Upstreams({"bedrock": chat_wire("bedrock", PROTOCOL)}, Network(transport), {}, 0.2)
    transport.close()


@pytest.fixture
def ask(upstream, upstreams) -> Callable[..., ChatResult]:
    """Ask the fake by the script; `stream` gives the events instead."""

    def send(*answers: Answer, stream=False, secret=API_KEY):
        upstream.script(*answers)
        mapping = Mapping("aws-bedrock", "m", "eu.anthropic.claude-haiku-4-5-20251001-v1:0")
        provider = Provider("aws-bedrock", "Bedrock", "bedrock", auth="sigv4")
        where = Target(provider, mapping, Credential(secret), upstream.url, {"region": "eu-west-1"}, trusted=True)
        request = ChatRequest("m", Requirements(stream=stream), lambda: TALK)
        deadline = Clock().monotonic() + 60
        if not stream:
            return upstreams.send(request, where, deadline)
        return [event for batch in upstreams.stream(request, where, deadline).batches for event in batch]

    return send


EVENTS = {"content-type": "application/vnd.amazon.eventstream"}


def streamed(*frames: bytes) -> list:
    return [event for batch in PROTOCOL.read_stream(MemoryReply(*frames, headers=EVENTS), False) for event in batch]


@pytest.mark.parametrize("secret", [API_KEY, ":".join(ACCESS)])
def test_whole_answer_is_read_with_either_kind_of_credential(ask, upstream, secret):
    result = ask(FULL, secret=secret)
    assert upstream.calls[0].problem == ""
    assert result.choices[0].parts == (
        Reasoning("Let me think.", "sig+/==", vendor="anthropic"),
        Reasoning(sealed=base64.b64encode(bytes(range(50))).decode(), vendor="bedrock"),
        Text("Hello ✓ there."),
        ToolCall("tooluse_0", "look", '{"x":"y"}'),
        ToolCall("tooluse_1", "see", "{}"),
    )
    assert result.choices[0].finish == "tool_calls"


def test_stream_gives_what_the_whole_answer_gives(ask):
    whole = ask(FULL)
    events = ask(FULL, stream=True)
    folded = collect([events])
    assert folded.choices[0].parts[:3] == whole.choices[0].parts[:3]
    assert [part.arguments for part in folded.choices[0].parts[3:]] == ['{"x": "y"}', "{}"]
    assert folded.usage.output == whole.usage.output and isinstance(events[0], Started)


def test_stream_in_single_bytes_is_the_same_stream(ask):
    assert collect([ask(Answer("Hello", fragment=1), stream=True)]) == collect([ask(Answer("Hello"), stream=True)])


def test_cut_at_any_byte_never_looks_complete(ask):
    whole = ask(Answer("Hello", piece=5), stream=True)
    assert isinstance(whole[-1], Finished)
    for cut in range(1, 640, 23):
        last = ask(Answer("Hello", piece=5, cut=cut), stream=True)[-1]
        assert isinstance(last, Failed) and isinstance(last.error, StreamTruncated | UpstreamFailed)


def test_stream_without_the_models_end_is_truncated_and_without_usage_is_whole(ask):
    assert isinstance(ask(Answer("Hi", stop=False), stream=True)[-1].error, StreamTruncated)
    last = ask(Answer("Hi", metadata=False), stream=True)[-1]
    assert isinstance(last, Finished) and last.usage is None


def test_damaged_frame_fails_the_stream(ask):
    last = ask(Answer("Hi", damage=True), stream=True)[-1]
    assert isinstance(last, Failed) and "damaged" in last.error.message


def test_silence_before_the_answer_is_reported(ask):
    events = ask(Answer("Hi", silence_s=0.5), stream=True)
    assert isinstance(events[0], Heartbeat) and isinstance(events[-1], Finished)


@pytest.mark.parametrize(
    ("answer", "usage"),
    [
        (Answer("x" * 8, cache_read=7), (7, 0, 0)),
        (Answer("x" * 8, cache_write=9), (0, 9, 0)),
        (Answer("x" * 8, cache_write=9, cache_details=(("1h", 6), ("5m", 3))), (0, 3, 6)),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_usage_is_disjoint_and_split_by_lifetime(ask, upstream, answer, usage, stream):
    found = ask(answer, stream=stream)
    counts: Usage = found[-1].usage if stream else found.usage
    assert (counts.cache_read, counts.cache_write, counts.cache_write_1h) == usage and counts.output == 2
    assert counts.input_total + counts.output == upstream.calls[0].usage["totalTokens"]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("guardrail_intervened", "content_filter"),
        ("content_filtered", "content_filter"),
        ("something_new", "stop"),
    ],
)
def test_stop_reasons_are_the_same_in_both_forms(ask, reason, finish):
    assert ask(Answer("Hi", reason=reason)).choices[0].finish == finish
    assert ask(Answer("Hi", reason=reason), stream=True)[-1].reason == finish


def test_stop_sequence_and_tier_come_along(ask):
    result = ask(Answer("Hi", stop_sequence="END", tier="flex"))
    assert (result.choices[0].finish, result.choices[0].stop_sequence) == ("stop_sequence", "END")
    assert result.service_tier == "flex"
    last = ask(Answer("Hi", stop_sequence="END", tier="flex"), stream=True)[-1]
    assert (last.stop_sequence, last.service_tier) == ("END", "flex")


def test_malformed_and_empty_answers_are_the_providers_fault(ask):
    malformed = [Answer("Hi", reason=f"malformed_{output}") for output in ("model_output", "tool_use")]
    for answer in (*malformed, Answer("")):
        with pytest.raises(UpstreamFailed):
            ask(answer)
        last = ask(answer, stream=True)[-1]
        assert isinstance(last, Failed) and last.error.blame == "provider"


@pytest.mark.parametrize(
    ("status", "kind", "message", "error"),
    [
        (400, "ValidationException", "Input is too long for requested model.", InvalidRequest),
        (400, "ValidationException", "The provided model identifier is invalid.", UpstreamRefused),
        (400, "ValidationException", "Model ID m with on-demand throughput isn’t supported.", UpstreamRefused),
        (400, "ServiceQuotaExceededException", "Your quota is exceeded.", UpstreamRateLimited),
        (403, "AccessDeniedException", "", UpstreamRefused),
        (404, "ResourceNotFoundException", "Could not resolve the foundation model.", UpstreamRefused),
        (424, "ModelErrorException", "", UpstreamFailed),
        (429, "ThrottlingException", "", UpstreamRateLimited),
        (429, "ModelNotReadyException", "", UpstreamRateLimited),
        (500, "InternalServerException", "", UpstreamFailed),
    ],
)  # fmt: skip
def test_refusals_find_who_is_to_blame(ask, status, kind, message, error):
    with pytest.raises(GatewayError) as raised:
        ask(Answer(status=status, error=kind, message=message))
    assert type(raised.value) is error and raised.value.upstream_status == status
    assert raised.value.blame == ("caller" if error is InvalidRequest else "provider")


def test_callers_fault_is_reported_in_the_services_words(ask):
    with pytest.raises(InvalidRequest, match="extraneous key") as raised:
        ask(Answer(status=400, error="ValidationException", message="#: extraneous key [tail] is not permitted."))
    assert raised.value.code == "ValidationException"
    with pytest.raises(InvalidRequest, match="Input is too long") as raised:
        ask(Answer(status=400, error="ValidationException", message="Input is too long for requested model."))
    assert raised.value.code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("kind", "error", "status"),
    [
        ("throttlingException", UpstreamRateLimited, 429),
        ("modelStreamErrorException", UpstreamFailed, 424),
        ("internalServerException", UpstreamFailed, 500),
        ("serviceUnavailableException", UpstreamOverloaded, 503),
        ("validationException", InvalidRequest, 400),
    ],
)
def test_exceptions_within_a_stream_fail_it(ask, kind, error, status):
    last = ask(Answer("Hello there", error=kind, error_at=2), stream=True)[-1]
    assert isinstance(last, Failed) and (type(last.error), last.error.upstream_status) == (error, status)


def test_wrong_credential_is_refused_without_being_shown(ask):
    with pytest.raises(UpstreamRefused) as raised:
        ask(secret="ABSKwrong-and-secret")
    assert "wrong-and-secret" not in f"{raised.value} {raised.value.details}"


def test_one_wire_number_with_two_kinds_of_content_is_two_blocks():
    def delta(inner: dict) -> bytes:
        return encode_frame("contentBlockDelta", {"delta": inner, "contentBlockIndex": 0})

    said = (delta({"reasoningContent": {"text": "Hm."}}), delta({"text": "Hi"}))
    result = collect([streamed(*said, encode_frame("messageStop", {"stopReason": "end_turn"}))])
    assert result.choices[0].parts == (Reasoning("Hm."), Text("Hi"))


def test_citations_and_images_of_an_answer_are_read():
    cited = {"title": "Doc", "sourceContent": [{"text": "so it is"}], "location": {"web": {"url": "https://x.example"}}}
    block = {"citationsContent": {"content": [{"text": "It is."}], "citations": [cited]}}
    image = {"image": {"format": "png", "source": {"bytes": "AAAA"}}}
    wire = {"output": {"message": {"content": [block, image]}}, "stopReason": "end_turn"}
    parts = PROTOCOL.read(MemoryReply(_json(wire)), False).choices[0].parts
    assert parts[0] == Text("It is.", sources=(Source("https://x.example", "Doc", "so it is"),))
    assert parts[1].media.data == "AAAA"


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"output": 1, "stopReason": "end_turn"}', b"{}"])
def test_answers_of_another_shape_are_the_providers_fault(body):
    with pytest.raises(UpstreamFailed):
        PROTOCOL.read(MemoryReply(body), False)


def test_events_of_another_shape_fail_the_stream():
    for frame in (encode_frame("contentBlockDelta", {"delta": 1}), encode_frame("messageStop", {})):
        assert isinstance(streamed(frame)[-1], Failed)


def test_a_stream_starts_with_the_message_and_before_its_content():
    start = encode_frame("messageStart", {"role": "assistant"})
    batches = list(PROTOCOL.read_stream(MemoryReply(start, headers=EVENTS), False))
    assert [type(event) for event in batches[0]] == [Started]


def test_unknown_events_are_passed_over():
    events = streamed(encode_frame("novelty", {}), encode_frame("messageStop", {"stopReason": "content_filtered"}))
    assert isinstance(events[-1], Finished)


def test_calls_of_servers_tools_say_who_ran_them():
    start = {"start": {"toolUse": {"toolUseId": "t", "name": "n", "type": "server_tool_use"}}, "contentBlockIndex": 0}
    call = next(event for event in streamed(encode_frame("contentBlockStart", start)) if type(event) is ToolCallDelta)
    assert call.executed == "provider"


def _json(wire: dict) -> bytes:
    return json.dumps(wire).encode()


@pytest.mark.parametrize(
    ("location", "kind", "index"),
    [
        ("documentChar", "characters", "documentIndex"),
        ("documentPage", "pages", "documentIndex"),
        ("documentChunk", "blocks", "documentIndex"),
        ("searchResultLocation", "result", "searchResultIndex"),
    ],
)
def test_citation_of_a_document_keeps_its_place(location, kind, index):
    where = {location: {index: 1, "start": 2, "end": 3}}
    assert read_source({"title": "D", "location": where}).place == SourceRange(kind, 1, 2, 3)
    assert read_source({"title": "D", "location": {"web": {"url": "https://a.example"}}}).place is None
