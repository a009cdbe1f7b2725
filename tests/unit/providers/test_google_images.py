"""Images of Gemini and Imagen: the ratios and sizes of each model, and answers that a filter withheld."""

from typing import Any

import orjson
import pytest
from support.replies import json_reply

from gateway.catalogue.entries import Mapping, Provider
from gateway.errors import UpstreamFailed
from gateway.neutral.images import ImagesInput, ImagesRequest
from gateway.neutral.request import Requirements
from gateway.providers.google.images import GoogleImages
from gateway.providers.protocol import Call, Credential, Target

PROTOCOL = GoogleImages(lambda headers, target: None)
ADDRESS = "https://generativelanguage.googleapis.com/v1beta"
RATIOS = "1:1 3:2 2:3 4:3 3:4 5:4 4:5 16:9 9:16 21:9"


def call(model: str, **wish: Any) -> Call:
    target = Target(Provider("acme", "Acme", "google"), Mapping("acme", "m", model), Credential("AIza-x"), ADDRESS, {})
    return PROTOCOL.write(ImagesRequest("m", Requirements(), lambda: ImagesInput("A fox", **wish)), target)


def chosen(model: str, **wish: Any) -> dict[str, Any]:
    """Return the ratio and size that are requested."""
    body = orjson.loads(call(model, **wish).body)
    if "parameters" in body:
        return {name: value for name, value in body["parameters"].items() if name != "sampleCount"}
    found: dict[str, Any] = body["generationConfig"].get("imageConfig", {})
    return found


@pytest.mark.parametrize(
    ("model", "ratios"),
    [
        ("gemini-2.5-flash-image", RATIOS),
        ("gemini-3-pro-image", RATIOS),
        ("gemini-3.1-flash-image", f"{RATIOS} 4:1 1:4 8:1 1:8"),
        ("imagen-4.0-generate-001", "1:1 4:3 3:4 16:9 9:16"),
    ],
)
def test_each_ratio_of_a_model_can_be_chosen_by_name_or_by_size(model: str, ratios: str) -> None:
    for ratio in ratios.split():
        width, height = (int(edge) * 96 for edge in ratio.split(":"))
        assert (
            chosen(model, aspect_ratio=ratio) == {"aspectRatio": ratio} and not call(model, aspect_ratio=ratio).warnings
        )
        assert chosen(model, size=f"{width}x{height}")["aspectRatio"] == ratio
    assert "aspect_ratio 7:1" in call(model, aspect_ratio="7:1").warnings[0]


@pytest.mark.parametrize(("size", "sent"), [("1K", {}), ("2K", {"imageSize": "2K"}), ("4K", {"imageSize": "4K"})])
def test_sizes_are_chosen_by_name_where_the_model_has_several(size: str, sent: dict[str, str]) -> None:
    assert chosen("gemini-3-pro-image", size=size) == sent and not call("gemini-3-pro-image", size=size).warnings
    assert chosen("gemini-2.5-flash-image", size=size) == {}
    assert bool(call("gemini-2.5-flash-image", size=size).warnings) == bool(sent)


@pytest.mark.parametrize("name", ["quality", "background", "output_format", "moderation", "style", "input_fidelity"])
def test_preferences_without_a_field_are_left_out_with_a_warning(name: str) -> None:
    made = call("gemini-3-pro-image", **{name: "high"})
    assert f"{name} is not supported by" in made.warnings[0]
    assert made.body == call("gemini-3-pro-image").body


@pytest.mark.parametrize(
    "reason",
    [
        "SAFETY",
        "RECITATION",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
    ],
)
def test_an_image_that_a_filter_withheld_is_no_failure_of_the_provider(reason: str) -> None:
    result = PROTOCOL.read(json_reply({"candidates": [{"finishReason": reason}]}), False)
    assert result.blocked and not result.images
    assert PROTOCOL.read(json_reply({"promptFeedback": {"blockReason": "OTHER"}}), False).blocked


@pytest.mark.parametrize("reason", ["STOP", "NO_IMAGE", "IMAGE_OTHER", "MAX_TOKENS"])
def test_an_answer_without_an_image_is_a_failure_of_the_provider(reason: str) -> None:
    with pytest.raises(UpstreamFailed):
        PROTOCOL.read(json_reply({"candidates": [{"finishReason": reason}]}), False)
