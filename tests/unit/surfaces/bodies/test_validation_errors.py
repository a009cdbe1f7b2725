"""Words that an error names are those that the fields of the body accept."""

import tracemalloc
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta, Raw, Struct, ValidationError

from gateway.errors import InvalidRequest
from gateway.surfaces.aisdk import prompt
from gateway.surfaces.bodies.validation_errors import MAX_HEAD_CHARS, explain, read_media, unreadable, words_of
from gateway.surfaces.openai.images import EditsBody


class Leaf(Struct, tag_field="kind", tag="leaf"):
    size: Literal["small", "large"]


class Branch(Struct, tag_field="kind", tag="branch"):
    parts: "list[Leaf | Branch]"


class Tree(Struct):
    root: Branch
    order: Annotated[Any, Meta(extra_json_schema={"anyOf": [{"enum": ["up", "down"]}, {"type": "null"}]})] = None
    rest: Raw = Raw(b"null")


def test_words_come_from_literals_tags_and_schemas() -> None:
    words = words_of(Tree)
    assert words["root.kind"] == ("branch",) and words["root.parts.kind"] == ("leaf",)
    assert set(words["root.parts.size"]) == {"small", "large"} and words["order"] == ("up", "down")


def test_an_error_names_the_words_of_its_field() -> None:
    error = explain("Invalid enum value 'ultra' - at `$.quality`", words_of(EditsBody))
    assert error.param == "quality" and "'ultra' is not one of" in error.message and "standard" in error.message


def test_types_are_named_as_in_json() -> None:
    class Every(Struct):
        text: str = ""
        count: int = 0
        share: float = 0.0
        switch: bool = False
        nested: dict[str, str] = {}

    words = {"text": "string", "count": "integer", "share": "number", "switch": "boolean", "nested": "object"}
    for field, word in words.items():
        with pytest.raises(ValidationError) as caught:
            msgspec.convert({field: []}, Every)
        error = explain(str(caught.value), {})
        assert error.param == field and f"expected {word}" in error.message.lower(), error.message


@pytest.mark.parametrize("body", [b"", b'{"model": "a"'])
def test_a_body_that_is_empty_or_cut_off_is_described_as_such(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError) as caught:
        msgspec.json.decode(body, type=Tree)
    assert unreadable(caught.value).message == "The body is not valid JSON: it is empty or incomplete."


# URLs of images and files in requests.

READERS: dict[str, Callable[[str], object]] = {
    "chat": lambda text: read_media(text, "url"),
    "the AI SDK": lambda text: prompt.read_media(text, "image/*", "data"),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_data_url_with_parameters_is_read(reader: str) -> None:
    READERS[reader]("data:image/png;charset=utf-8;base64,iVBORw0KGgo=")
    assert read_media("DATA:Image/PNG;a=b;BASE64,AAAA", "url").media_type == "image/png"


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("separators", [";" * 1_000_000, ";a" * 1_000_000 + ";base64,AAAA", "a" * MAX_HEAD_CHARS + ","])
def test_a_data_url_of_separators_is_refused_without_memory_for_each(reader: str, separators: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest):
            READERS[reader](f"data:{separators}")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000  # a copy of the URL at most
