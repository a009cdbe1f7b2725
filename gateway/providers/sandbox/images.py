"""Images: PNG files of one colour that the prompt tells, as large as was asked.

Facts: Images API reference; PNG specification, third edition.
"""

import hashlib
import struct
import zlib
from base64 import b64encode
from typing import Any

import orjson

from gateway.providers.sandbox.checks import Check, check_fields, of, one_of
from gateway.providers.sandbox.counting import count
from gateway.providers.sandbox.directives import Directives, strip
from gateway.providers.sandbox.personas import Persona
from gateway.providers.sandbox.refusals import refuse
from gateway.providers.sandbox.response import Response

MOST_EDGE = 4096
USUAL = "1024x1024"
TOKENS = {"low": 272, "medium": 1056, "high": 4160}
READ_TOKENS = 300


def check_images(body: dict[str, Any]) -> None:
    """Raise InvalidRequest with the wire's words for the first thing that is wrong."""
    check_fields(body, FIELDS, ("model", "prompt"))


def directive_text(body: dict[str, Any]) -> str:
    """Where directives are looked for: the prompt."""
    return body["prompt"]


def respond(body: dict[str, Any], persona: Persona, directives: Directives) -> Response:
    """The answer to a checked body."""
    size = body.get("size") or USUAL
    width, height = edges_of(USUAL if size == "auto" else size)
    prompt, number = strip(body["prompt"]), int(body.get("n") or 1)
    quality = body.get("quality") or "medium"
    pictures = [png(width, height, f"{prompt} {place}") for place in range(number)]
    read = READ_TOKENS * sum(name.startswith("image") or name == "mask" for name in body)
    text, made = count(prompt), TOKENS.get(quality, TOKENS["medium"]) * number
    usage = {
        "input_tokens": text + read,
        "input_tokens_details": {"text_tokens": text, "image_tokens": read},
        "output_tokens": made,
        "total_tokens": text + read + made,
    }
    whole: dict[str, Any] = {
        "created": 1,
        "data": [{"b64_json": b64encode(one).decode()} for one in pictures],
        "size": f"{width}x{height}",
        "quality": quality,
        "output_format": "png",
    }
    if not directives.no_usage:
        whole["usage"] = usage
    return Response(orjson.dumps(whole), bare=orjson.dumps({**whole, "data": []}))


def edges_of(size: str) -> tuple[int, int]:
    """Width and height. InvalidRequest."""
    width, _, height = size.partition("x")
    if not (width.isdigit() and height.isdigit() and 1 <= int(width) <= MOST_EDGE and 1 <= int(height) <= MOST_EDGE):
        raise refuse(f"Invalid size '{size[:32]}'. Supported sizes are widthxheight up to {MOST_EDGE}.", "size")
    return int(width), int(height)


def png(width: int, height: int, text: str) -> bytes:
    """A palette image of one colour, with the text in a tEXt chunk."""
    colour = hashlib.sha256(text.encode()).digest()[:3]
    row = b"\0" + bytes((width + 7) // 8)  # one bit a pixel, all of the first colour
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 3, 0, 0, 0)),
        (b"PLTE", colour),
        (b"tEXt", b"prompt\0" + text.encode("latin-1", "replace")[:1000]),
        (b"IDAT", zlib.compress(row * height, 9)),
        (b"IEND", b""),
    )
    written = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(written)


def _number(value: Any, param: str) -> None:
    """Forms send numbers as text."""
    if not str(value).isdigit() or not 1 <= int(value) <= 10:
        raise refuse(f"Invalid '{param}': expected a number from 1 to 10.", param)


FIELDS: dict[str, Check] = {
    "model": of(str),
    "prompt": of(str),
    "n": _number,
    "size": of(str),
    "quality": one_of("low", "medium", "high", "auto"),
    "background": one_of("transparent", "opaque", "auto"),
    "output_format": one_of("png"),
    "moderation": one_of("auto", "low"),
    "input_fidelity": one_of("high", "low"),
    "image": lambda value, param: None,
    "image[]": lambda value, param: None,
    "mask": lambda value, param: None,
}
