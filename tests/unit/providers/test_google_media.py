"""Media of messages, as Gemini's API takes them."""

from typing import Any

import orjson
import pytest

from gateway.catalogue.entries import Mapping, Provider
from gateway.neutral.chat import ChatRequest, Conversation, Requirements
from gateway.neutral.parts import Audio, File, Image, Media, Message, Part, ToolCall, ToolResult, Video
from gateway.providers.google.generate import GoogleGenerate
from gateway.providers.protocol import Credential, Target

ADDRESS = "https://generativelanguage.googleapis.com/v1beta"


def written(*messages: Message, model: str = "gemini-3-flash") -> list[dict[str, Any]]:
    """Return the contents of the request."""
    request = ChatRequest("m", Requirements(), lambda: Conversation(messages))
    target = Target(Provider("acme", "Acme", "google"), Mapping("acme", "m", model), Credential("AIza-x"), ADDRESS, {})
    contents: list[dict[str, Any]] = orjson.loads(GoogleGenerate(lambda secret: "x").write(request, target).body)[
        "contents"
    ]
    return contents


@pytest.mark.parametrize(
    ("part", "media_type"),
    [
        (Image(Media(data="AAAA")), "image/jpeg"),
        (Video(Media(data="AAAA")), "video/mp4"),
        (File(Media(data="AAAA")), "application/pdf"),
        (Audio(Media(data="AAAA")), "audio/wav"),
        (Audio(Media(data="AAAA"), "mp3"), "audio/mp3"),
        (Audio(Media(data="AAAA"), "mpga"), "audio/mpeg"),
        (Audio(Media(data="AAAA"), "flac"), "audio/flac"),
        (Audio(Media(media_type="audio/ogg", data="AAAA"), "mp3"), "audio/ogg"),
    ],
)
def test_data_without_a_media_type_has_that_of_its_kind(part: Part, media_type: str) -> None:
    (content,) = written(Message("user", (part,)))
    assert content["parts"] == [{"inlineData": {"mimeType": media_type, "data": "AAAA"}}]


@pytest.mark.parametrize("url", ["https://a.org/film", "http://a.org/film", "gs://bucket/film"])
def test_films_are_loaded_from_their_address(url: str) -> None:
    (content,) = written(Message("user", (Video(Media(url=url)),)))
    assert content["parts"] == [{"fileData": {"fileUri": url, "mimeType": "video/mp4"}}]


@pytest.mark.parametrize(
    ("media_type", "inside"),
    [
        ("image/png", True),
        ("image/jpeg", True),
        ("image/webp", True),
        ("application/pdf", True),
        ("text/plain", True),
        ("image/gif", False),
    ],
)
def test_media_of_a_tool_result_are_in_it_or_follow_it(media_type: str, inside: bool) -> None:
    result = ToolResult("c1", (File(Media(media_type=media_type, data="AAAA")),))
    asked = Message("user", (Image(Media(data="AAAA")),))
    _, _, *contents = written(asked, Message("assistant", (ToolCall("c1", "look", "{}"),)), Message("tool", (result,)))
    media = {"inlineData": {"mimeType": media_type, "data": "AAAA"}}
    response = contents[0]["parts"][0]["functionResponse"]
    assert response.get("parts", []) == [media] * inside
    assert [part for content in contents[1:] for part in content["parts"] if "inlineData" in part] == [media] * (
        not inside
    )
