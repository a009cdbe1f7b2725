"""Generates valid audio files of a given duration with an embedded text.

WAV, FLAC and PCM contain a quiet tone with the text in its lowest bits. MP3, Opus and AAC contain silence, because an
encoder would be larger than the sandbox, and the text in a tag or packet.

Sources: RIFF/WAVE; RFC 9639 (FLAC); ISO/IEC 11172-3 (MP3); ID3v2.3; RFC 7845 and RFC 3533 (Opus in Ogg); ISO/IEC
13818-7 (ADTS).
"""

import math
import struct
from array import array
from collections.abc import Callable, Iterator

from gateway.providers.speech_codecs import as_wav

RATE = 16_000
MARK = b"llmgateway-sandbox:"
AMPLITUDE = 2000
TONE_HZ = 220
BLOCK = 4096  # samples in a FLAC frame
# Frames of silence: MP3 with 1152 samples at 44.1 kHz and 128 kbit/s, Opus with 20 ms, AAC with 1024 samples at 44.1
# kHz.
MP3_FRAME = bytes.fromhex("fffb9064") + bytes(413)
MP3_FRAME_S = 1152 / 44_100
OPUS_FRAME_S = 0.02
AAC_FRAME_S = 1024 / 44_100
OPUS_SILENCE = bytes.fromhex("f8fffe")
AAC_SILENCE = bytes.fromhex("00c800802380")
OPUS_RATE = 48_000
PACKETS_A_PAGE = 50


def make(format: str, seconds: float, text: str) -> bytes:
    """Return a file in a speech format that lasts `seconds`, rounded up to a frame."""
    return ENCODERS[format](seconds, MARK + text.encode() + b"\0")


def text_of(data: bytes) -> str | None:
    """Return the text in a file of `make`; None for any other file."""
    samples = _samples_of(data)
    if samples is not None:
        hidden = _bits_to_bytes(samples)
    else:
        hidden = data
    at = hidden.find(MARK)
    if at < 0:
        return None
    return hidden[at + len(MARK) : hidden.index(b"\0", at)].decode("utf-8", "replace")


def _samples(seconds: float, note: bytes) -> array:
    """Return a tone with `note` in its lowest bits, long enough for the note."""
    count = max(round(seconds * RATE), len(note) * 8)
    period = [round(AMPLITUDE * math.sin(2 * math.pi * TONE_HZ * n / RATE)) & ~1 for n in range(RATE // TONE_HZ)]
    tone = array("h", (period * (count // len(period) + 1))[:count])
    for place, byte in enumerate(note):
        for bit in range(8):
            tone[place * 8 + bit] |= byte >> (7 - bit) & 1
    return tone


def _pcm(seconds: float, note: bytes) -> bytes:
    return _samples(seconds, note).tobytes()


def _wav(seconds: float, note: bytes) -> bytes:
    return as_wav(_pcm(seconds, note), RATE)


def _flac(seconds: float, note: bytes) -> bytes:
    """Return a FLAC file of verbatim subframes, which are as large as PCM and the simplest case for decoders."""
    samples = _samples(seconds, note)
    total = len(samples)
    info = struct.pack(">HH", BLOCK, BLOCK) + bytes(6)
    info += ((RATE << 44) | (0 << 41) | (15 << 36) | total).to_bytes(8, "big") + bytes(16)
    frames = b"".join(_flac_frame(number, samples[at : at + BLOCK]) for number, at in enumerate(range(0, total, BLOCK)))
    return b"fLaC" + b"\x80" + len(info).to_bytes(3, "big") + info + frames


def _flac_frame(number: int, samples: array) -> bytes:
    # Sync and fixed block size; sixteen bits of block size and the rate of the stream; one channel, sixteen bits.
    head = b"\xff\xf8" + b"\x70" + b"\x08" + _utf8_number(number) + struct.pack(">H", len(samples) - 1)
    head += bytes([_crc(head, 8, 0x07)])
    swapped = array("h", samples)
    swapped.byteswap()
    frame = head + b"\x02" + swapped.tobytes()
    return frame + _crc(frame, 16, 0x8005).to_bytes(2, "big")


def _utf8_number(number: int) -> bytes:
    """Return a frame number, encoded like a character in UTF-8."""
    return chr(number).encode("utf-8", "surrogatepass")


def _crc(data: bytes, bits: int, polynomial: int) -> int:
    table = TABLES[bits]
    value = 0
    mask = (1 << bits) - 1
    shift = bits - 8
    for byte in data:
        value = (value << 8 & mask) ^ table[(value >> shift) ^ byte]
    return value


def _table(bits: int, polynomial: int) -> list[int]:
    table = []
    top = 1 << bits - 1
    mask = (1 << bits) - 1
    for byte in range(256):
        value = byte << bits - 8
        for _ in range(8):
            value = (value << 1 ^ polynomial if value & top else value << 1) & mask
        table.append(value)
    return table


TABLES = {8: _table(8, 0x07), 16: _table(16, 0x8005), 32: _table(32, 0x04C11DB7)}


def _mp3(seconds: float, note: bytes) -> bytes:
    return _id3(note) + MP3_FRAME * max(1, math.ceil(seconds / MP3_FRAME_S))


def _id3(note: bytes) -> bytes:
    """Return an ID3v2.3 tag with the embedded text."""
    body = b"\0" + b"sandbox\0" + note
    frame = b"TXXX" + len(body).to_bytes(4, "big") + b"\0\0" + body
    size = len(frame)
    return b"ID3\3\0\0" + bytes(size >> shift & 0x7F for shift in (21, 14, 7, 0)) + frame


def _aac(seconds: float, note: bytes) -> bytes:
    size = 7 + len(AAC_SILENCE)
    # MPEG-4 AAC-LC, 44.1 kHz (4), one channel, no CRC.
    head = bytes((0xFF, 0xF1, 0x50, 0x40 | size >> 11, size >> 3 & 0xFF, (size & 7) << 5 | 0x1F, 0xFC))
    return _id3(note) + (head + AAC_SILENCE) * max(1, math.ceil(seconds / AAC_FRAME_S))


def _opus(seconds: float, note: bytes) -> bytes:
    packets = max(1, math.ceil(seconds / OPUS_FRAME_S))
    head = b"OpusHead" + struct.pack("<BBHIhB", 1, 1, 0, OPUS_RATE, 0, 0)
    tags = b"OpusTags" + struct.pack("<I", 7) + b"sandbox" + struct.pack("<I", 1) + _comment(note)
    pages = [_ogg_page(0, 0, 2, [head]), _ogg_page(1, 0, 0, [tags])]
    for number, at in enumerate(range(0, packets, PACKETS_A_PAGE), 2):
        end = min(at + PACKETS_A_PAGE, packets)
        granule = round(end * OPUS_FRAME_S * OPUS_RATE)
        pages.append(_ogg_page(number, granule, 4 if end == packets else 0, [OPUS_SILENCE] * (end - at)))
    return b"".join(pages)


def _comment(note: bytes) -> bytes:
    text = b"NOTE=" + note
    return struct.pack("<I", len(text)) + text


def _ogg_page(number: int, granule: int, flags: int, packets: list[bytes]) -> bytes:
    """Return an Ogg page of whole packets. A packet that exceeds the 255 segments of a page is truncated."""
    laces = b"".join(b"\xff" * (len(packet) // 255) + bytes([len(packet) % 255]) for packet in packets)[:255]
    body = b"".join(packets)[: sum(laces)]
    head = struct.pack("<4sBBQIIIB", b"OggS", 0, flags, granule, 1, number, 0, len(laces)) + laces
    crc = _crc(head + body, 32, 0x04C11DB7)
    return head[:22] + struct.pack("<I", crc) + head[26:] + body


def _samples_of(data: bytes) -> Iterator[int] | None:
    """Return the samples of a WAV or FLAC file of `make`, or of PCM; None for formats with the text in a tag."""
    if data[:4] == b"RIFF":
        return iter(array("h", data[44 : 44 + (len(data) - 44) // 2 * 2]))
    if data[:4] == b"fLaC":
        return _flac_samples(data)
    if data[:3] == b"ID3" or data[:4] == b"OggS":
        return None
    return iter(array("h", data[: len(data) // 2 * 2]))


def _flac_samples(data: bytes) -> Iterator[int]:
    at = 42
    number = 0
    while at + 10 < len(data):
        start = at + 4 + len(_utf8_number(number))
        count = int.from_bytes(data[start : start + 2], "big") + 1
        block = array("h", data[start + 4 : start + 4 + 2 * count])
        block.byteswap()
        yield from block
        at = start + 4 + 2 * count + 2
        number = number + 1


def _bits_to_bytes(samples: Iterator[int]) -> bytes:
    found = bytearray()
    value = 0
    ended = 0
    for place, sample in enumerate(samples):
        value = value << 1 & 0xFF | sample & 1
        if place % 8 == 7:
            found.append(value)
            ended += value == 0
            if ended or (len(found) == len(MARK) and found != MARK):
                break
    return bytes(found)


ENCODERS: dict[str, Callable[[float, bytes], bytes]] = {
    "wav": _wav, "pcm": _pcm, "flac": _flac, "mp3": _mp3, "opus": _opus, "aac": _aac,
}  # fmt: skip
