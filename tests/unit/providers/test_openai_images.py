from base64 import b64encode
from typing import Any

import orjson
import pytest
from support.replies import json_reply

from gateway.catalogue.entries import Mapping, Provider
from gateway.errors import NotSupported
from gateway.neutral.chat import Requirements
from gateway.neutral.images import ImageEditsRequest, ImagesInput, ImagesRequest, Picture
from gateway.providers.openai.images import OpenAIImages
from gateway.providers.protocol import Call, Credential, Target
from gateway.runtime.large_files import StoredFile

PROTOCOL = OpenAIImages()
PNG = Picture(StoredFile.of(b"\x89PNG\r\n\x1a\n" + b"1" * 40), "image/png")
CHOICES: dict[str, Any] = {
    "size": "1024x1024",
    "quality": "high",
    "background": "transparent",
    "output_format": "webp",
    "output_compression": 80,
    "n": 2,
}


def call_of(kind: type[ImagesRequest], content: ImagesInput, **entry: Any) -> Call:
    mapping = Mapping("openai", "gpt-image-1", "gpt-image-1", **entry)
    target = Target(
        Provider("openai", "OpenAI", "openai"), mapping, Credential("sk-x"), "https://api.openai.com/v1", {}
    )
    return PROTOCOL.write(kind("gpt-image-1", Requirements(), lambda: content), target)


def test_an_entry_without_parameters_has_those_of_gpt_image() -> None:
    call = call_of(ImagesRequest, ImagesInput("A fox", moderation="low", **CHOICES))
    sent = {"model": "gpt-image-1", "prompt": "A fox", "moderation": "low", **CHOICES}
    assert orjson.loads(call.body) == sent and not call.warnings


def test_an_edit_is_a_form_with_the_parameters_of_gpt_image() -> None:
    call = call_of(ImageEditsRequest, ImagesInput("A fox", input_fidelity="high", pictures=(PNG,), **CHOICES))
    form = b"".join(bytes(piece) for piece in call.body.pieces()).decode("latin-1")
    for name, value in {"input_fidelity": "high", **CHOICES}.items():
        assert f'name="{name}"\r\n\r\n{value}\r\n' in form
    assert 'name="image"; filename="image-0.png"' in form and not call.warnings


def test_parameters_that_an_entry_does_not_list_are_named_in_warnings() -> None:
    call = call_of(ImagesRequest, ImagesInput("A fox", quality="high", size="512x512"), supported_parameters=("size",))
    assert orjson.loads(call.body) == {"model": "gpt-image-1", "prompt": "A fox", "size": "512x512"}
    assert "quality is not supported by" in call.warnings[0]
    with pytest.raises(NotSupported):
        call_of(ImagesRequest, ImagesInput("A fox", n=2), supported_parameters=("size",))


def test_the_size_2k_is_sent_only_to_models_that_accept_it() -> None:
    call = call_of(ImagesRequest, ImagesInput("A fox", size="2K"))
    assert "size" not in orjson.loads(call.body)
    assert list(call.warnings) == ["size 2K was left out: it is not a width and height."]
    call = call_of(ImagesRequest, ImagesInput("A fox", size="2K"), extra={"size_steps": True})
    assert orjson.loads(call.body)["size"] == "2K" and not call.warnings


@pytest.mark.parametrize(
    ("data", "name"),
    [(b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff\xe0", "jpeg"), (b"RIFF\x24\0\0\0WEBPVP8 ", "webp")],
)
def test_an_image_has_the_format_of_its_bytes(data: bytes, name: str) -> None:
    wire = {"data": [{"b64_json": b64encode(data + b"1" * 40).decode()}], "output_format": "gif"}
    result = PROTOCOL.read(json_reply(wire), False)
    assert (result.output_format, result.images[0].media.media_type) == (name, f"image/{name}")
