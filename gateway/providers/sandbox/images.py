"""Images: files of the requested size in a colour derived from the prompt, as a complete answer or as events.

Source: OpenAI API reference, "Create image" and its stream events.
"""

import hashlib
import struct
import zlib
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import orjson

from gateway.neutral.images import shape_of
from gateway.providers.sandbox.checks import Check, accept, check_fields, of, one_of
from gateway.providers.sandbox.directives import Directives, Persona, strip
from gateway.providers.sandbox.prose import count
from gateway.providers.sandbox.response import Response, refuse, write_event

# Generates valid image files of the requested size in a single colour, which is derived from a text.
#
# An image of one colour needs no encoder: PNG has one bit per pixel, JPEG has identical blocks, and WebP has codes of
# one symbol, which need no bits.
#
# Sources: PNG specification, third edition; ITU-T T.81 and JFIF 1.02 (JPEG); RFC 9649 (WebP, lossless).

Colour = tuple[int, int, int]
MAX_TEXT = 1000
# JPEG: with a quantizer of 8, the first coefficient of a block is the value itself. In the DC table, the length 0 has
# the code 0 and the lengths 1 to 8 have codes of five bits. The AC table only has the code for the end of a block.
JPEG_QUANTUM = 8
JPEG_MIDDLE = 128
LONG_CODE = 0b10000
DC_CODES = bytes((1, 0, 0, 0, 8)) + bytes(11) + bytes(range(9))
AC_CODES = bytes((1,)) + bytes(15) + b"\0"
JPEG_BLOCK = 8
JPEG_UNCHANGED = "00"
GREEN, RED, BLUE, OPAQUE = 1, 0, 2, 255  # WebP's codes have the order green, red, blue, alpha, distance


def make(format: str, width: int, height: int, text: str) -> bytes:
    """Return a file in one of FORMATS. It contains the text where the format has a field for it."""
    return ENCODERS[format](width, height, text)


def png(width: int, height: int, text: str) -> bytes:
    """Return a palette image, with the text in a tEXt chunk."""
    row = b"\0" + bytes((width + 7) // 8)  # one bit per pixel, all of the first colour
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 3, 0, 0, 0)),
        (b"PLTE", bytes(_colour(text))),
        (b"tEXt", b"prompt\0" + _latin(text)),
        (b"IDAT", zlib.compress(row * height, 9)),
        (b"IEND", b""),
    )
    written = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(written)


def jpeg(width: int, height: int, text: str) -> bytes:
    """Return a baseline image without subsampling, with the text as a comment."""
    components = b"".join(bytes((number, 0x11, 0)) for number in (1, 2, 3))
    segments = (
        (0xE0, b"JFIF\0\1\2\0\0\1\0\1\0\0"),
        (0xFE, _latin(text)),
        (0xDB, bytes((0,)) + bytes((JPEG_QUANTUM,)) * 64),
        (0xC0, struct.pack(">BHHB", 8, height, width, 3) + components),
        (0xC4, b"\x00" + DC_CODES),
        (0xC4, b"\x10" + AC_CODES),
        (0xDA, b"\3" + b"".join(bytes((number, 0)) for number in (1, 2, 3)) + b"\0\x3f\0"),
    )
    head = b"".join(struct.pack(">BBH", 0xFF, mark, len(data) + 2) + data for mark, data in segments)
    blocks = -(-width // JPEG_BLOCK) * -(-height // JPEG_BLOCK)
    first = "".join(_first_block(value - JPEG_MIDDLE) for value in _ycc(_colour(text)))
    return b"\xff\xd8" + head + _pack(first, (blocks - 1) * 3 * len(JPEG_UNCHANGED)) + b"\xff\xd9"


def webp(width: int, height: int, text: str) -> bytes:
    """Return a lossless image."""
    colour = _colour(text)
    bits = [(0x2F, 8), (width - 1, 14), (height - 1, 14), (0, 1), (0, 3)]  # no alpha, version 0
    bits += [(0, 1), (0, 1), (0, 1)]  # no transform, no colour cache, one group of codes
    for value in (colour[GREEN], colour[RED], colour[BLUE], OPAQUE):
        bits += [(1, 1), (0, 1), (1, 1), (value, 8)]  # a simple code of one symbol with eight bits
    bits += [(1, 1), (0, 1), (0, 1), (0, 1)]
    whole = 0
    at = 0
    for value, size in bits:
        whole |= value << at
        at += size
    data = whole.to_bytes(-(-at // 8), "little")
    chunk = b"VP8L" + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)
    return b"RIFF" + struct.pack("<I", len(chunk) + 4) + b"WEBP" + chunk


def _colour(text: str) -> Colour:
    red, green, blue = hashlib.sha256(text.encode()).digest()[:3]
    return red, green, blue


def _latin(text: str) -> bytes:
    return text.encode("latin-1", "replace")[:MAX_TEXT]


def _ycc(colour: Colour) -> tuple[int, int, int]:
    """Return brightness and the two colour differences (JFIF 1.02)."""
    red, green, blue = colour
    bright = 0.299 * red + 0.587 * green + 0.114 * blue
    differences = JPEG_MIDDLE + (blue - bright) / 1.772, JPEG_MIDDLE + (red - bright) / 1.402
    return round(bright), min(255, round(differences[0])), min(255, round(differences[1]))


def _first_block(value: int) -> str:
    """Return the bits of a component's first block: the length of the value, the value, and the end of the block."""
    length = abs(value).bit_length()
    if not length:
        return JPEG_UNCHANGED
    written = value if value > 0 else value + (1 << length) - 1
    return f"{LONG_CODE + length - 1:05b}{written:0{length}b}0"


def _pack(first: str, zeros: int) -> bytes:
    """Return JPEG's entropy-coded bytes: padded with ones, and with a zero byte after each 0xFF."""
    size = len(first) + zeros
    start = int(first.ljust(-(-len(first) // 8) * 8, "0"), 2).to_bytes(-(-len(first) // 8), "big")
    packed = bytearray(start.ljust(-(-size // 8), b"\0"))
    packed[-1] |= (1 << (-size % 8)) - 1
    return bytes(packed).replace(b"\xff", b"\xff\x00")


ENCODERS: dict[str, Callable[[int, int, str], bytes]] = {"png": png, "jpeg": jpeg, "webp": webp}
FORMATS = tuple(ENCODERS)


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
    prompt: str = body["prompt"]
    return prompt


def respond(body: dict[str, Any], persona: Persona, directives: Directives) -> Response:
    """Return the answer to a checked body. Previews have other colours."""
    width, height = _edges_for(body)
    prompt = strip(body["prompt"])
    number = int(body.get("n") or 1)
    output_format = body.get("output_format") or "png"
    quality = body.get("quality") or "medium"
    shared = {"size": f"{width}x{height}", "quality": quality, "output_format": output_format}
    usage = {} if directives.no_usage else {"usage": _usage_of(body, prompt, quality, number)}

    def draw(variant: str) -> dict[str, str]:
        file = make(output_format, width, height, f"{prompt} {variant}")
        return {"b64_json": b64encode(file).decode()}

    if str(body.get("stream")).lower() != "true":
        data = [draw(str(place)) for place in range(number)]
        whole: dict[str, Any] = {"created": 1, "data": data, **shared, **usage}
        return Response(orjson.dumps(whole), bare=orjson.dumps({**whole, "data": []}))
    kind = "image_edit" if _pictures_in(body) else "image_generation"
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
    "output_format": one_of(*FORMATS),
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
