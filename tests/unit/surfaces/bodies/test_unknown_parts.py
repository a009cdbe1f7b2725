import orjson
import pytest

from gateway.dialects import openai as dialect
from gateway.media.token_counting import IMAGE_TOKENS, LIKELY_IMAGE_TOKENS, counted
from gateway.neutral.chat import ChatRequest
from gateway.surfaces.anthropic import reader as messages_reader
from gateway.surfaces.anthropic import schema as messages_schema
from gateway.surfaces.bodies.unknown_parts import size_of
from gateway.surfaces.cohere import cohere_chat_reader
from gateway.surfaces.google import reader as gemini_reader
from gateway.surfaces.google import schema as gemini_schema
from gateway.surfaces.openai import chat_reader, chat_schema
from gateway.surfaces.responses import reader as responses_reader
from gateway.surfaces.responses import schema as responses_schema


def uses_of(part: dict, **fields) -> set[tuple[str, str]]:
    """The name and payment of what a chat request with a part uses beside its model."""
    raw = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": [part]}], **fields})
    request = chat_reader.read_chat(chat_schema.decode(raw), raw)
    assert {use.vendor for use in request.requirements.hosted_uses} <= {dialect.NAME}
    return {(use.name, use.payment) for use in request.requirements.hosted_uses}


@pytest.mark.parametrize(
    ("members", "used"),
    [
        ({"shape": "cube"}, set()),
        ({"video_url": {"url": "https://media.example/a.mp4"}}, {("hologram", "tokens")}),
        ({"video_url": "data:video/mp4;base64,AAAA"}, {("hologram", "tokens")}),
        ({"frames": [{"data": "AAAA"}]}, {("hologram", "tokens")}),
        ({"place": {"uri": "gs://bucket/a.mp4"}}, {("hologram.file_id", "object")}),
        ({"file_id": "file-1"}, {("hologram.file_id", "object")}),
        ({"helper": {"model": "gpt-5-pro"}}, {("hologram.model", "unknown")}),
    ],
)
def test_a_part_of_an_unknown_type_is_reserved_and_checked_for_what_it_names(members, used):
    assert uses_of({"type": "hologram", **members}) == used


def test_a_tool_of_an_unknown_type_has_no_known_price():
    assert uses_of({"type": "text", "text": "Hi"}, tools=[{"type": "hologram"}]) == {("hologram", "unknown")}


PNG = "iVBORw0KGgo" + "A" * 9_997
HOLOGRAM = {"type": "hologram", "url": f"data:image/png;base64,{PNG}", "frames": [{"data": PNG}], "data": "Oslo, rain."}


def test_inline_media_of_an_unknown_part_are_no_text():
    assert size_of(HOLOGRAM).text < 200 and size_of(HOLOGRAM).media == 2


def test_a_text_that_looks_like_media_is_text():
    assert size_of({"type": "hologram", "data": "It rains in Oslo. " * 100}) == (1829, 0)


def read_chat(raw: bytes) -> ChatRequest:
    return chat_reader.read_chat(chat_schema.decode(raw), raw)


def read_messages(raw: bytes) -> ChatRequest:
    return messages_reader.read_messages(messages_schema.decode(raw), raw=raw)


def read_response(raw: bytes) -> ChatRequest:
    body = responses_schema.decode(raw)
    return responses_reader.read_response(body, [], body.input).request


def read_contents(raw: bytes) -> ChatRequest:
    return gemini_reader.read_generation("m", *gemini_schema.decode(raw), stream=False)


def read_cohere(raw: bytes) -> ChatRequest:
    return cohere_chat_reader.read_chat(cohere_chat_reader.decode(raw))


SAID = {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}, HOLOGRAM]}]}
INSIDE = {key: value for key, value in HOLOGRAM.items() if key != "type"}
READ = {
    "chat": (read_chat, SAID),
    "messages": (read_messages, SAID | {"max_tokens": 9}),
    "items": (read_response, {"model": "m", "input": [{"role": "user", "content": "Hi"}, HOLOGRAM]}),
    "parts": (read_response, {"model": "m", "input": [{"role": "user", "content": [HOLOGRAM]}]}),
    "gemini": (read_contents, {"contents": [{"parts": [{"text": "Hi", "hologram": INSIDE}]}]}),
    "cohere": (read_cohere, SAID),
}


@pytest.mark.parametrize("surface", READ)
def test_inline_media_of_an_unknown_part_are_reserved_as_media(surface: str) -> None:
    read, body = READ[surface]
    needs = counted(read(orjson.dumps(body))).requirements
    assert needs.prompt_bytes < 300 and needs.media == 2
    assert (needs.media_tokens, needs.likely_media_tokens) == (2 * IMAGE_TOKENS, 2 * LIKELY_IMAGE_TOKENS)


def test_a_wrapped_part_of_a_known_type_is_a_part_of_an_unknown_one():
    image = {"type": "image_url", "image_url": {"url": "https://media.example/a.png"}}
    hidden = {"type": "unknown", "kind": "image_url", "body": image}
    raw = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": [hidden]}]})
    (part,) = chat_schema.decode(raw).messages[0].content
    assert (part.kind, part.body) == ("unknown", hidden)
    assert ("unknown", "tokens") in uses_of(hidden)
