"""Images of the sandbox: their formats, and what they cost."""

import base64
from typing import Any

import orjson

from gateway.neutral.file_types import type_of
from gateway.providers.sandbox import images
from gateway.providers.sandbox.directives import Directives, Persona


def drawn(**options: Any) -> dict[str, Any]:
    body = {"model": "m", "prompt": "A fox", **options}
    images.check_images(body)
    answer: dict[str, Any] = orjson.loads(images.respond(body, Persona(), Directives()).body)
    return answer


def test_a_better_quality_costs_more() -> None:
    low, medium, high = (drawn(quality=name)["usage"]["output_tokens"] for name in ("low", "medium", "high"))
    assert low < medium < high and drawn()["usage"]["output_tokens"] == medium


def test_an_image_has_the_format_that_is_requested() -> None:
    for name in ("png", "jpeg", "webp"):
        (image,) = drawn(output_format=name)["data"]
        assert type_of(base64.b64decode(image["b64_json"])[:64]) == f"image/{name}"


def test_a_ratio_is_taken_instead_of_a_size() -> None:
    assert drawn(aspect_ratio="16:9")["data"]


def test_pictures_in_a_form_are_read_and_counted() -> None:
    assert drawn(**{"image[]": "x"})["usage"]["input_tokens"] > drawn()["usage"]["input_tokens"]
    images.check_images({"model": "m", "prompt": "A fox", "stream": True})
