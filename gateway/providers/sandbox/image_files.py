"""Generates valid image files of the requested size in a single colour, which is derived from a text.

An image of one colour needs no encoder: PNG has one bit per pixel, JPEG has identical blocks, and WebP has codes of one
symbol, which need no bits.

Sources: PNG specification, third edition; ITU-T T.81 and JFIF 1.02 (JPEG); RFC 9649 (WebP, lossless).
"""

import hashlib
import struct
import zlib
from collections.abc import Callable

Colour = tuple[int, int, int]
MAX_TEXT = 1000
# JPEG: with a quantizer of 8, the first coefficient of a block is the value itself. In the DC table, the length 0 has
# the code 0 and the lengths 1 to 8 have codes of five bits. The AC table only has the code for the end of a block.
QUANTUM = 8
MIDDLE = 128
LONG_CODE = 0b10000
DC_CODES = bytes((1, 0, 0, 0, 8)) + bytes(11) + bytes(range(9))
AC_CODES = bytes((1,)) + bytes(15) + b"\0"
BLOCK = 8
UNCHANGED = "00"
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
        (0xDB, bytes((0,)) + bytes((QUANTUM,)) * 64),
        (0xC0, struct.pack(">BHHB", 8, height, width, 3) + components),
        (0xC4, b"\x00" + DC_CODES),
        (0xC4, b"\x10" + AC_CODES),
        (0xDA, b"\3" + b"".join(bytes((number, 0)) for number in (1, 2, 3)) + b"\0\x3f\0"),
    )
    head = b"".join(struct.pack(">BBH", 0xFF, mark, len(data) + 2) + data for mark, data in segments)
    blocks = -(-width // BLOCK) * -(-height // BLOCK)
    first = "".join(_first_block(value - MIDDLE) for value in _ycc(_colour(text)))
    return b"\xff\xd8" + head + _pack(first, (blocks - 1) * 3 * len(UNCHANGED)) + b"\xff\xd9"


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
    differences = MIDDLE + (blue - bright) / 1.772, MIDDLE + (red - bright) / 1.402
    return round(bright), min(255, round(differences[0])), min(255, round(differences[1]))


def _first_block(value: int) -> str:
    """Return the bits of a component's first block: the length of the value, the value, and the end of the block."""
    length = abs(value).bit_length()
    if not length:
        return UNCHANGED
    if value > 0:
        written = value
    else:
        written = value + (1 << length) - 1
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
