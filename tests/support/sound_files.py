"""Files of sound with headers that may declare another length than they have."""

import io
import struct

import soundfile

from gateway.providers.sandbox import speech as made


def wave(
    seconds: float, rate: int, bits: int, channels: int, declared_s: float | None = None, coding: int = 1
) -> bytes:
    """Return PCM with a header that declares `declared_s` seconds."""
    second = rate * channels * bits // 8
    size = int(seconds * second)
    claimed = size if declared_s is None else int(declared_s * second)
    head = struct.pack("<IHHIIHH", 16, coding, channels, rate, second, channels * bits // 8, bits)
    return (
        b"RIFF" + struct.pack("<I", size + 36) + b"WAVEfmt " + head + b"data" + struct.pack("<I", claimed) + bytes(size)
    )


def wave_of(data: bytes, coding: int, channels: int, rate: int, block: int, bits: int, further: bytes = b"") -> bytes:
    """Return a WAV file with these bytes and this description; `further` is the extension of the description."""
    head = struct.pack("<HHIIHH", coding, channels, rate, rate * block & 0xFFFFFFFF, block, bits) + further
    size = struct.pack("<I", len(data))
    chunks = b"WAVEfmt " + struct.pack("<I", len(head)) + head + b"data" + size + data
    return b"RIFF" + struct.pack("<I", len(chunks)) + chunks


def xing(claimed: int, frames: int) -> bytes:
    """Return an MP3 with a first frame that declares this number of frames of 26 ms."""
    first = bytearray(made.MP3_FRAME)
    first[36:52] = b"Xing" + struct.pack(">III", 3, claimed, claimed * len(first))
    return bytes(first) + made.MP3_FRAME * (frames - 1)


def box(name: bytes, *contents: bytes) -> bytes:
    body = b"".join(contents)
    return struct.pack(">I", len(body) + 8) + name + body


def m4a(samples: int, coding: bytes = b"mp4a", declared_ms: int = 1000, extra: bytes = b"") -> bytes:
    """Return AAC of 44.1 kHz in MP4 with a header that declares `declared_ms`."""
    config = b"\x03\x19\0\1\0\x04\x11\x40" + bytes(12) + b"\x05\x02\x12\x10\x06\x01\x02"
    entry = (
        bytes(6) + b"\0\1" + bytes(8) + struct.pack(">HHII", 1, 16, 0, 44_100 << 16) + box(b"esds", bytes(4), config)
    )
    table = box(b"stsd", bytes(4), b"\0\0\0\1", box(coding, entry)) + box(b"stsz", bytes(8), struct.pack(">I", samples))
    media = box(b"hdlr", bytes(8), b"soun", bytes(12)) + box(b"minf", box(b"stbl", table))
    movie = box(b"mvhd", bytes(12), struct.pack(">II", 1000, declared_ms), bytes(80))
    return (
        box(b"ftyp", b"M4A ", bytes(8))
        + box(b"moov", movie, box(b"trak", extra, box(b"mdia", media)))
        + box(b"mdat", bytes(99))
    )


def element(ident: bytes, contents: bytes, unknown: bool = False) -> bytes:
    return ident + (b"\x01" + b"\xff" * 7 if unknown else struct.pack(">Q", len(contents) | 1 << 56)) + contents


def webm(packets: int, codec: bytes = b"A_OPUS") -> bytes:
    """Return a browser's recording: a stream of unknown size, without a duration."""
    track = element(b"\xae", element(b"\xd7", b"\1") + element(b"\x86", codec))
    blocks = element(b"\xa3", b"\x81\0\0\x80" + made.OPUS_SILENCE) * packets
    segment = element(b"\x16\x54\xae\x6b", track) + element(b"\x1f\x43\xb6\x75", blocks, unknown=True)
    return element(b"\x1a\x45\xdf\xa3", b"webm") + element(b"\x18\x53\x80\x67", segment, unknown=True)


def ogg_of_packets(packets: list[bytes]) -> bytes:
    """Return a stream with a page for each packet, without checksums."""
    pages = []
    for number, packet in enumerate(packets):
        laces = bytes([255] * (len(packet) // 255) + [len(packet) % 255])
        head = struct.pack("<4sBBQIIIB", b"OggS", 0, 0 if number else 2, 0, 7, number, 0, len(laces))
        pages.append(head + laces + packet)
    return b"".join(pages)


def encoded(kind: str, coding: str, seconds: float) -> bytearray:
    """Return silence of 8 kHz as an encoder writes it."""
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", 8_000, 1, coding, format=kind) as writer:
        for _ in range(round(seconds)):  # a long block overflows the stack of the Vorbis encoder
            writer.write([0.0] * 8_000)
    return bytearray(file.getvalue())


def flac(seconds: float, declared_s: float) -> bytes:
    data = encoded("FLAC", "PCM_16", seconds)
    data[21:26] = bytes([data[21] & 0xF0]) + struct.pack(">I", round(8_000 * declared_s))  # samples in all
    return bytes(data)


def aiff(seconds: float, declared_s: float) -> bytes:
    data = encoded("AIFF", "PCM_S8", seconds)
    samples = round(8_000 * declared_s)
    for name, place, count in ((b"COMM", 10, samples), (b"SSND", 4, samples + 8)):
        start = data.index(name) + place
        data[start : start + 4] = struct.pack(">I", count)
    return bytes(data)


def ogg(coding: str, seconds: float, declared_s: float) -> bytes:
    """Return Opus or Vorbis with pages that declare their end by `declared_s`."""
    data = encoded("OGG", coding, seconds)
    place = data.find(b"OggS")
    while place >= 0:
        data[place + 6 : place + 14] = struct.pack("<Q", round(48_000 * declared_s))
        place = data.find(b"OggS", place + 4)
    return bytes(data)
