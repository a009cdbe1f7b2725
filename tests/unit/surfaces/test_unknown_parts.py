import orjson
import pytest

from gateway.dialects import openai as dialect
from gateway.surfaces.openai import chat_reader, chat_schema
from gateway.surfaces.unknown_parts import text_size


def uses_of(part: dict, **fields) -> set[tuple[str, str]]:
    """The name and payment of what a chat request with a part uses beside its model."""
    raw = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": [part]}], **fields})
    request = chat_reader.read(chat_schema.decode(raw), raw)
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


def test_inline_media_of_an_unknown_part_are_no_text():
    part = {"type": "hologram", "url": "data:video/mp4;base64," + "A" * 10_000, "frames": [{"data": "A" * 10_000}]}
    assert text_size(part) < 200


def test_a_wrapped_part_of_a_known_type_is_a_part_of_an_unknown_one():
    image = {"type": "image_url", "image_url": {"url": "https://media.example/a.png"}}
    hidden = {"type": "unknown", "kind": "image_url", "body": image}
    raw = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": [hidden]}]})
    (part,) = chat_schema.decode(raw).messages[0].content
    assert (part.kind, part.body) == ("unknown", hidden)
    assert ("unknown", "tokens") in uses_of(hidden)
