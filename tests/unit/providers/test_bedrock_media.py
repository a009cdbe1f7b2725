"""Formats of media in Bedrock's Converse API: those of its service model, and the media types that callers send."""

from typing import Any

import orjson
import pytest
from botocore.loaders import Loader
from support.clock import FakeClock

from gateway.catalogue.entries import Mapping, Provider
from gateway.neutral.chat import ChatRequest, Conversation, Requirements
from gateway.neutral.parts import Audio, File, Image, Media, Message, Part, Video
from gateway.providers.bedrock.converse import BedrockConverse
from gateway.providers.protocol import Credential, Target

WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
EXCEL = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


def format_of(part: Part) -> str:
    """Return the format that a part is sent with."""
    request = ChatRequest("m", Requirements(), lambda: Conversation((Message("user", (part,)),)))
    provider = Provider("aws-bedrock", "Amazon Bedrock", "bedrock", auth="sigv4")
    address = "https://bedrock-runtime.eu-west-1.amazonaws.com"
    target = Target(
        provider, Mapping("aws-bedrock", "m", "m"), Credential("ABSK-key"), address, {"region": "eu-west-1"}
    )
    block: dict[str, Any] = orjson.loads(BedrockConverse(FakeClock()).write(request, target).body)["messages"][0][
        "content"
    ][0]
    (kind,) = block
    found: str = block[kind]["format"]
    return found


def test_each_format_of_the_service_is_accepted() -> None:
    shapes = Loader().load_service_model("bedrock-runtime", "service-2")["shapes"]
    for name in shapes["AudioFormat"]["enum"]:
        assert format_of(Audio(Media(data="AAAA"), name)) == name
    for name in shapes["VideoFormat"]["enum"]:
        assert format_of(Video(Media(f"video/{name}", data="AAAA"))) == name
    for name in shapes["ImageFormat"]["enum"]:
        assert format_of(Image(Media(f"image/{name}", data="AAAA"))) == name
    for name in shapes["DocumentFormat"]["enum"]:
        assert format_of(File(Media(data="AAAA"), f"report.{name}")) == name


@pytest.mark.parametrize(
    ("part", "name"),
    [
        (Audio(Media("audio/mpeg", data="AAAA")), "mp3"),
        (Audio(Media("audio/x-wav", data="AAAA")), "wav"),
        (Audio(Media("audio/wave", data="AAAA")), "wav"),
        (Audio(Media("audio/x-m4a", data="AAAA")), "m4a"),
        (Video(Media("video/quicktime", data="AAAA")), "mov"),
        (Video(Media("video/x-matroska", data="AAAA")), "mkv"),
        (Video(Media("video/x-flv", data="AAAA")), "flv"),
        (Video(Media("video/x-ms-wmv", data="AAAA")), "wmv"),
        (Video(Media("video/3gpp", data="AAAA")), "three_gp"),
        (Image(Media("image/webp", data="/9j/AAAA")), "jpeg"),
        (Image(Media("image/webp", data="iVBORw0KGgo=")), "png"),
        (Image(Media("image/png", data="R0lGODAA")), "gif"),
        (Image(Media("image/png", data="UklGRAAA")), "webp"),
        (File(Media("application/pdf", data="AAAA"), "a"), "pdf"),
        (File(Media("text/csv; charset=utf-8", data="AAAA"), "a"), "csv"),
        (File(Media("application/msword", data="AAAA"), "a"), "doc"),
        (File(Media(WORD, data="AAAA"), "a"), "docx"),
        (File(Media("application/vnd.ms-excel", data="AAAA"), "a"), "xls"),
        (File(Media(EXCEL, data="AAAA"), "a"), "xlsx"),
        (File(Media("text/html", data="AAAA"), "a"), "html"),
        (File(Media("text/plain", data="AAAA"), "a.log"), "txt"),
        (File(Media("text/markdown", data="AAAA"), "a"), "md"),
        (File(Media("text/x-python", data="AAAA"), "a.py"), "txt"),
    ],
)
def test_media_types_of_callers_have_a_format(part: Part, name: str) -> None:
    assert format_of(part) == name
