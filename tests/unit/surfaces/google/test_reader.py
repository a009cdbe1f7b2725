"""Bodies of generateContent as neutral requests."""

import json
from time import process_time
from typing import Any, get_args

import pytest
from google import genai

from gateway.dialects.google import OWN_FIELDS
from gateway.errors import InvalidRequest
from gateway.neutral.chat import ChatRequest, WebSearch
from gateway.neutral.parts import Audio, File, Image, Media, Part, PartMembers, Text, Video
from gateway.surfaces.google import reader, schema
from gateway.surfaces.google.schema import camel, json_schema_of


def read(body: dict[str, Any]) -> ChatRequest:
    decoded, wire = schema.decode(json.dumps({"contents": [{"parts": [{"text": "Hello"}]}], **body}).encode())
    return reader.read_generation("gemini-2.5-flash", decoded, wire, stream=False)


def read_part(part: dict[str, Any]) -> tuple[ChatRequest, Part]:
    request = read({"contents": [{"role": "user", "parts": [part]}]})
    (message,) = request.conversation().messages
    return request, message.parts[0]


@pytest.mark.parametrize("kind", ["executableCode", "codeExecutionResult", "toolCall", "toolResponse"])
def test_a_part_of_googles_own_tools_returns_to_google_whole(kind: str) -> None:
    request, part = read_part({kind: {"id": "1"}})
    assert request.requirements.own_parts == "google" and not request.requirements.vendor_only
    assert part.body == {kind: {"id": "1"}}  # type: ignore[union-attr]


def test_code_and_its_output_are_text_for_other_vendors() -> None:
    _, code = read_part({"executableCode": {"language": "PYTHON", "code": "print(42)"}})
    _, output = read_part({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "42"}})
    _, search = read_part({"toolCall": {"toolType": "GOOGLE_SEARCH_WEB"}})
    assert code.instead == (Text("```python\nprint(42)\n```"),)  # type: ignore[union-attr]
    assert output.instead == (Text("Output:\n```\n42\n```"),)  # type: ignore[union-attr]
    assert search.instead == ()  # type: ignore[union-attr]


def test_a_member_beside_a_text_or_media_stays_for_google() -> None:
    beside = PartMembers("google", {"hologram": {"shape": "cube"}})
    picture = {"inlineData": {"mimeType": "image/png", "data": "YSxi"}}
    for members, known in (
        ({"text": "See:"}, Text("See:", beside=beside)),
        (picture, Image(Media("image/png", data="YSxi"), beside=beside)),
    ):
        request, part = read_part({**members, "hologram": {"shape": "cube"}})
        assert part == known
        assert request.requirements.own_parts == "google"


def test_files_that_only_google_can_load_are_sent_to_google_only() -> None:
    """https://ai.google.dev/gemini-api/docs/video-understanding: stored files, and addresses of YouTube."""
    video = "watch?v=9hE5-98ZeCg"
    own = (
        "https://generativelanguage.googleapis.com/v1beta/files/abc",
        "gs://bucket/object.mp4",
        f"https://www.youtube.com/{video}",
        f"https://youtube.com/{video}",
        "https://youtu.be/9hE5-98ZeCg",
    )
    for address in (*own, "https://www.example.com/youtube.com/film.mp4", "http://www.example.com/film.mp4"):
        request, part = read_part({"fileData": {"fileUri": address, "mimeType": "video/mp4"}})
        assert isinstance(part, Video)
        assert request.requirements.vendor_only == ("google" if address in own else ""), address


def test_bytes_are_read_by_their_media_type() -> None:
    for kind in ("text/csv", "application/json", "application/xml"):
        request, part = read_part({"inlineData": {"mimeType": kind, "data": "YSxi"}})
        assert part == Text("a,b") and not request.requirements.documents, kind
    for kind, media_part in {
        "image/png": Image(Media("image/png", data="YSxi")),
        "audio/mpeg": Audio(Media("audio/mpeg", data="YSxi"), "mp3"),
        "application/pdf": File(Media("application/pdf", data="YSxi"), filename=""),
    }.items():
        request, part = read_part({"inlineData": {"mimeType": kind, "data": "YSxi"}})
        assert part == media_part
        needed = request.requirements
        assert (needed.vision, needed.audio, needed.documents) == tuple(
            kind.startswith(family) for family in ("image", "audio", "application")
        )


def test_a_body_is_relayed_with_only_the_roles_changed_that_google_refuses() -> None:
    for role in (None, "", "user", "model", "function", "tool", "system"):
        request = read({"contents": [{"role": role, "parts": [{"text": "Hello"}]}]})
        assert request.native is not None
        relayed = role if role in ("model", "system") else "user"
        assert request.native.body["contents"] == [{"role": relayed, "parts": [{"text": "Hello"}]}]
        assert request.native.instructed == (role == "system")
    with pytest.raises(InvalidRequest, match=r"contents.0.role"):
        read({"contents": [{"role": "assistant", "parts": [{"text": "Hello"}]}]})


def test_members_that_only_google_knows_reach_google() -> None:
    own = {"safetySettings": [{"category": "X"}], "cachedContent": "cachedContents/1", "labels": {"team": "a"}}
    own |= {"store": False}
    request = read({**own, "generationConfig": {"seed": 1, "temperature": 0.5}})
    assert request.options.extra == {OWN_FIELDS: {**own, "generationConfig": {"seed": 1}}}
    assert request.requirements.vendor_only == "google"
    assert request.native is not None and own.items() <= request.native.body.items()


@pytest.mark.parametrize("name", ["googleSearch", "googleSearchRetrieval"])
def test_both_names_of_googles_search_are_the_search_of_every_vendor(name: str) -> None:
    request = read({"tools": [{name: {}}]})
    assert request.requirements.web_search and request.requirements.vendor_only == ""
    assert request.conversation().tools == (WebSearch(),)


def test_the_texts_that_end_an_answer_are_read() -> None:
    assert read({"generationConfig": {"stopSequences": ["END"]}}).conversation().sampling.stop == ("END",)


def test_an_answer_is_continued_by_google_only() -> None:
    request = read({"continuationToken": "dG9rZW4="})
    assert request.requirements.vendor_only == "google"
    assert request.native is not None and request.native.body["continuationToken"] == "dG9rZW4="


def test_each_member_of_googles_generation_config_is_read_or_reaches_google() -> None:
    members = {camel(name) for name in genai.types.GenerationConfig.model_fields}
    assert members <= {*schema.GenerationConfig.__struct_fields__, *reader.OWN_CONFIG}


def test_each_word_of_googles_library_for_levels_and_tool_modes_is_accepted() -> None:
    for level in genai.types.ThinkingLevel:
        read({"generationConfig": {"thinkingConfig": {"thinkingLevel": level.value}}})
    for mode in genai.types.FunctionCallingConfigMode:
        read({"toolConfig": {"functionCallingConfig": {"mode": mode.value}}})
        assert not read({}).warnings


@pytest.mark.parametrize("value", ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"])
def test_a_value_in_place_of_a_signature_is_no_signature(value: str) -> None:
    call = {"name": "look", "args": {}}
    _, part = read_part({"functionCall": call, "thoughtSignature": value})
    assert part == read_part({"functionCall": call})[1]


def test_words_may_be_the_numbers_of_the_protocol_buffers() -> None:
    """`google-generativeai` sends them so: ?$alt=json;enum-encoding=int."""
    schema_of = {"type": 6, "properties": {"a": {"type": 5, "items": {"type": 1}}}}
    tools = [{"functionDeclarations": [{"name": "look", "parameters": schema_of}]}]
    request = read({"tools": tools, "toolConfig": {"functionCallingConfig": {"mode": 2}}})
    conversation = request.conversation()
    array = {"type": "array", "items": {"type": "string"}}
    assert conversation.tools[0].schema == {"type": "object", "properties": {"a": array}}  # type: ignore[union-attr]
    assert conversation.tool_choice is not None and conversation.tool_choice.mode == "required"
    content = {"parts": [{"text": "Hello"}]}
    for number, word in ((2, "RETRIEVAL_DOCUMENT"), (8, "CODE_RETRIEVAL_QUERY")):
        body = schema.convert({"content": content, "taskType": number}, schema.EmbedBody)
        assert body.task == {"taskType": word}


def test_whole_numbers_of_a_schema_may_be_texts_and_hints_of_google_are_dropped() -> None:
    """proto3 JSON mapping: int64 is a text."""
    fields = genai.types.Schema.model_fields
    counts = [camel(name) for name, field in fields.items() if int in get_args(field.annotation)]
    assert len(counts) == 6
    hints = {"propertyOrdering": ["a"], "example": 1, "nullable": False}
    assert json_schema_of({name: "3" for name in counts} | hints) == dict.fromkeys(counts, 3)


def test_many_pieces_of_a_streamed_turn_are_joined_by_one_copy_of_their_texts() -> None:
    count, text = 20_000, "x" * 1_000
    parts = [{"text": text} for _ in range(count)]
    request = read({"contents": [{"parts": [{"text": "Hi"}]}, {"role": "model", "parts": parts}]})
    begun = process_time()
    (part,) = request.conversation().messages[1].parts
    assert process_time() - begun < 4  # a copy for each piece would be one of 10 MB on average, 20,000 times
    assert isinstance(part, Text) and len(part.text) == count * len(text)


def test_results_without_an_id_are_those_of_the_open_calls_in_their_order() -> None:
    def call(ident: str) -> dict[str, Any]:
        return {"functionCall": {"name": "f", "id": ident, "args": {}}}

    def result(ident: str = "") -> dict[str, Any]:
        return {"functionResponse": {"name": "f", "response": {}, **({"id": ident} if ident else {})}}

    calls = [call("a"), call("b"), call("b"), call("c")]
    results = [result("b"), result(), result("b"), result("lost"), result()]
    request = read({"contents": [{"role": "model", "parts": calls}, {"role": "user", "parts": results}]})
    turns = request.decode().messages
    found = [part.call_id for turn in turns if turn.role == "tool" for part in turn.parts]
    assert found == ["b", "a", "b", "c", ""]
