"""Images: files of the requested size in a colour derived from the prompt, as a complete answer or as events.

Source: OpenAI API reference, "Create image" and its stream events.
"""

from base64 import b64encode
from typing import Any

import orjson

from gateway.neutral.images import shape_of
from gateway.providers.sandbox import image_files
from gateway.providers.sandbox.checks import Check, accept, check_fields, of, one_of
from gateway.providers.sandbox.counting import count
from gateway.providers.sandbox.directives import Directives, strip
from gateway.providers.sandbox.error_responses import refuse
from gateway.providers.sandbox.personas import Persona
from gateway.providers.sandbox.response import Response, write_event

MAX_EDGE = 4096
DEFAULT_SIZE = "1024x1024"
# Images with an aspect ratio have about EDGE² pixels and edges that are multiples of STEP.
EDGE = 1024
STEP = 16
MAX_SHAPE = 16
TOKENS = {"low": 272, "medium": 1056, "high": 4160}
READ_TOKENS = 300
PARTIAL_TOKENS = 100


def check_images(body: dict[str, Any]) -> None:
    """Raise InvalidRequest with OpenAI's error text for the first mistake."""
    check_fields(body, FIELDS, ("model", "prompt"))


def directive_text(body: dict[str, Any]) -> str:
    """Return the text that may contain directives: the prompt."""
    return body["prompt"]


def respond(body: dict[str, Any], persona: Persona, directives: Directives) -> Response:
    """Return the answer to a checked body. Previews have other colours."""
    width, height = _edges_for(body)
    prompt = strip(body["prompt"])
    number = int(body.get("n") or 1)
    output_format = body.get("output_format") or "png"
    quality = body.get("quality") or "medium"
    shared = {"size": f"{width}x{height}", "quality": quality, "output_format": output_format}
    if directives.no_usage:
        usage = {}
    else:
        usage = {"usage": _usage_of(body, prompt, quality, number)}

    def draw(variant: str) -> dict[str, str]:
        file = image_files.make(output_format, width, height, f"{prompt} {variant}")
        return {"b64_json": b64encode(file).decode()}

    if str(body.get("stream")).lower() != "true":
        data = [draw(str(place)) for place in range(number)]
        whole: dict[str, Any] = {"created": 1, "data": data, **shared, **usage}
        return Response(orjson.dumps(whole), bare=orjson.dumps({**whole, "data": []}))
    if _pictures_in(body):
        kind = "image_edit"
    else:
        kind = "image_generation"
    shown = [
        {"type": f"{kind}.partial_image", "partial_image_index": place, **draw(f"on its way {place}"), **shared}
        for place in range(int(body.get("partial_images") or 0))
    ]
    done = {"type": f"{kind}.completed", **draw("0"), **shared, **usage}
    frames = tuple(write_event(event | {"created_at": 1}) for event in (*shown, done))
    return Response(frames=frames, streamed=True, pieces=len(frames))


def _pictures_in(body: dict[str, Any]) -> int:
    return sum(name.startswith("image") or name in ("mask", "markup") for name in body)


def _usage_of(body: dict[str, Any], prompt: str, quality: str, number: int) -> dict[str, Any]:
    text = count(prompt)
    read = READ_TOKENS * _pictures_in(body)
    written = TOKENS.get(quality, TOKENS["medium"]) * number + PARTIAL_TOKENS * int(body.get("partial_images") or 0)
    return {
        "input_tokens": text + read,
        "input_tokens_details": {"text_tokens": text, "image_tokens": read},
        "output_tokens": written,
        "total_tokens": text + read + written,
    }


def edges_of(size: str) -> tuple[int, int]:
    """Return width and height. InvalidRequest for an invalid size."""
    width, _, height = size.partition("x")
    if not (width.isdigit() and height.isdigit() and 1 <= int(width) <= MAX_EDGE and 1 <= int(height) <= MAX_EDGE):
        raise refuse(f"Invalid size '{size[:32]}'. Supported sizes are widthxheight up to {MAX_EDGE}.", "size")
    return int(width), int(height)


def _edges_for(body: dict[str, Any]) -> tuple[int, int]:
    """Return width and height by the ratio, otherwise by the size."""
    shape = shape_of(body.get("aspect_ratio") or "")
    if shape:
        width, height = (max(1, round(edge / STEP)) * STEP for edge in (EDGE * shape**0.5, EDGE / shape**0.5))
        return min(width, MAX_EDGE), min(height, MAX_EDGE)
    size = body.get("size") or DEFAULT_SIZE
    return edges_of(DEFAULT_SIZE if size == "auto" else size)


def _ratio(value: Any, param: str) -> None:
    if not isinstance(value, str) or not (value == "auto" or 1 / MAX_SHAPE <= shape_of(value) <= MAX_SHAPE):
        raise refuse(f"Invalid '{param}': expected a ratio such as 16:9.", param)


def _number(value: Any, param: str) -> None:
    """Check a number from 1 to 10, which may be text because forms send text."""
    if not str(value).isdigit() or not 1 <= int(value) <= 10:
        raise refuse(f"Invalid '{param}': expected a number from 1 to 10.", param)


def _percent(value: Any, param: str) -> None:
    if not str(value).isdigit() or int(value) > 100:
        raise refuse(f"Invalid '{param}': expected a number from 0 to 100.", param)


def _few(value: Any, param: str) -> None:
    if str(value) not in ("0", "1", "2", "3"):
        raise refuse(f"Invalid '{param}': expected a number from 0 to 3.", param)


FIELDS: dict[str, Check] = {
    "model": of(str),
    "prompt": of(str),
    "n": _number,
    "size": of(str),
    "aspect_ratio": _ratio,
    "quality": one_of("low", "medium", "high", "auto"),
    "background": one_of("transparent", "opaque", "auto"),
    "output_format": one_of(*image_files.FORMATS),
    "output_compression": _percent,
    "stream": accept,
    "partial_images": _few,
    "moderation": one_of("auto", "low"),
    "input_fidelity": one_of("high", "low"),
    "image": accept,
    "image[]": accept,
    "mask": accept,
    "markup": accept,
}
