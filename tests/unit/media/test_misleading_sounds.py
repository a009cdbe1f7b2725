"""Files that decoders play longer than their headers tell. The seconds are those that FFmpeg plays."""

import random
import struct

import pytest
from support.sound_files import box, element, m4a, ogg_of_packets, wave_of

from gateway.media.sounds import length_of
from gateway.neutral.sound_length import is_compressed
from gateway.providers.sandbox import speech as made
from gateway.runtime.large_files import StoredFile

NOISE = random.Random(1).randbytes(800_000)
BLOCK = bytes.fromhex("00000007")  # the smallest block of AAC
HEAD = b"OpusHead\1\1\0\0\x40\x1f\0\0\0\0\0"
TAGS = b"OpusTags" + bytes(8)
LONG = bytes([3 << 3 | 1, 0, 0])  # a packet of Opus of 120 ms
SHORT = 0x80  # the first byte of a packet of 2.5 ms
DECOY = b"\1vorbis" + bytes(5) + struct.pack("<I", 192_000) + bytes(12) + b"\x66" + bytes(10)
FLAC_HEAD = b"fLaC\x80\0\0\x22" + bytes(10) + b"\x00\x00\x10\xf0" + bytes(20)
BLOCK_S = 1024 / 44_100
AIFF = (b"FORM\0\0\0\0AIFFCOMM\0\0\0\x12\0\1" + struct.pack(">IH", len(NOISE), 8) + b"\x40\x0b\xfa" + bytes(7)) + (
    b"SSND" + struct.pack(">III", len(NOISE) + 8, 0, 0) + NOISE
)


def adts(blocks: int) -> bytes:
    """Return a frame of 8 kHz that holds many blocks."""
    size = 7 + len(BLOCK) * blocks
    head = bytes((0xFF, 0xF1, 0x40 | 11 << 2, 0x40 | size >> 11, size >> 3 & 0xFF, (size & 7) << 5 | 0x1F, 0xFC))
    return head + BLOCK * blocks


def fragment(samples: int) -> bytes:
    return box(b"moof", box(b"traf", box(b"trun", bytes(4), struct.pack(">I", samples))))


def edited(entries: int) -> bytes:
    """Return a file with an edit list that plays its media repeatedly."""
    table = box(b"elst", bytes(4), struct.pack(">I", entries) + struct.pack(">IIHH", 1000, 0, 1, 0) * entries)
    return m4a(1000, extra=box(b"edts", table))


def opus(blocks: bytes, *fields: bytes, after: bytes = b"") -> bytes:
    track = element(b"\xae", element(b"\xd7", b"\1") + element(b"\x86", b"A_OPUS") + b"".join(fields))
    cluster = element(b"\x1f\x43\xb6\x75", blocks)
    segment = element(b"\x16\x54\xae\x6b", track) + cluster + after
    return element(b"\x1a\x45\xdf\xa3", b"webm") + element(b"\x18\x53\x80\x67", segment, unknown=True)


def blocks(packet: bytes, count: int) -> bytes:
    return element(b"\xa3", b"\x81\0\0\x80" + packet) * count


def two_tracks() -> bytes:
    """Return a file with two tracks of one number, of which readers use the first."""
    second = element(b"\xae", element(b"\xd7", b"\1") + element(b"\x86", b"V_VP8"))
    first = element(b"\xae", element(b"\xd7", b"\1") + element(b"\x86", b"A_OPUS"))
    cluster = element(b"\x1f\x43\xb6\x75", blocks(LONG, 1000))
    segment = element(b"\x16\x54\xae\x6b", first + second) + cluster
    return element(b"\x1a\x45\xdf\xa3", b"webm") + element(b"\x18\x53\x80\x67", segment, unknown=True)


EXCEEDING = b"\xec" + struct.pack(">Q", 1 << 56 | 1 << 40)
FILES = {
    "mu-law of 64 bits": (wave_of(NOISE, 7, 1, 8_000, 8, 64), 100),
    "A-law of 65,528 bits": (wave_of(NOISE, 6, 1, 8_000, 8_191, 65_528), 100),
    "extensible mu-law": (
        wave_of(
            NOISE, 0xFFFE, 1, 8_000, 8, 64, b"\x16\0\x40\0\4\0\0\0\7\0" + bytes.fromhex("000000001000800000aa00389b71")
        ),
        100,
    ),
    "MP3 as PCM": (wave_of(made.MP3_FRAME * 1000, 1, 2, 48_000, 4, 16), 26),
    "AAC as PCM": (wave_of(made.make("aac", 300.0), 1, 2, 48_000, 4, 16), 300),
    "PCM of 32,767 channels": (wave_of(NOISE, 1, 32_767, 48_000, 65_534, 16), 26),
    "two chunks of WAV": (wave_of(NOISE, 1, 1, 8_000, 1, 8) + b"data\x08\0\0\0" + bytes(8), 100),
    "two chunks of AIFF": (AIFF + b"SSND" + struct.pack(">III", 16, 0, 0) + bytes(8), 100),
    "Vorbis within Opus": (ogg_of_packets([HEAD, TAGS, DECOY] + [LONG] * 3000), 360),
    "Opus after Vorbis": (ogg_of_packets([DECOY, HEAD, TAGS] + [LONG] * 3000), 360),
    "FLAC of 1 Hz in Ogg": (ogg_of_packets([FLAC_HEAD, *made.make("flac", 1.0).split(b"\xff\xf8")]), 1),
    "packets without their first byte": (
        opus(blocks(bytes((SHORT, 0)), 1000), element(b"\x6d\x80", bytes(4))),
        120,
    ),
    "two tracks of a number": (two_tracks(), 120),
    "clusters behind an error": (opus(blocks(LONG, 1), after=EXCEEDING + opus(blocks(LONG, 1000))), 120),
    "clusters in another element": (
        opus(blocks(LONG, 1), after=element(b"\xec", element(b"\x1f\x43\xb6\x75", blocks(LONG, 1000)))),
        120,
    ),
    "edits": (edited(20), 20 * 1000 * BLOCK_S),
    "fragments in another box": (m4a(1) + box(b"udta", fragment(1000)), 1000 * BLOCK_S),
    "fragments after many boxes": (m4a(1) + box(b"free") * 100_001 + fragment(1000), 1000 * BLOCK_S),
    "PCM in one sample": (m4a(1, b"twos") + NOISE, 800_000),
    "many blocks in a sample": (m4a(1) + BLOCK * 1000, 1000 * BLOCK_S),
    "many blocks in a frame": (adts(1500) * 20, 3840),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_lasts_at_least_as_long_as_a_decoder_plays_it(name: str) -> None:
    """Files of these kinds were reserved as a hundredth to a ten-thousandth of what was played."""
    data, seconds = FILES[name]
    assert length_of(StoredFile.of(data)).max_ms >= seconds * 1000 * 0.99


def test_further_blocks_of_aac_are_not_foreseen() -> None:
    found = length_of(StoredFile.of(made.make("aac", 30.0)))
    assert found.likely_ms == found.foreseen_ms < found.max_ms
    assert found.foreseen_ms == pytest.approx(30_000, abs=100)


@pytest.mark.parametrize(
    "frame",
    [
        made.MP3_FRAME,
        adts(1),
        b"\x56\xe0\x10" + bytes(16),
        b"\x0b\x77\0\0\0\x40" + bytes(122),
        b"\x0b\x77\0\x3f\0\x80" + bytes(122),
    ],
    ids=["mp3", "aac", "loas", "ac3", "e-ac3"],
)
def test_compressed_frames_are_recognized_by_three_in_a_row(frame: bytes) -> None:
    assert is_compressed(bytes(99) + frame * 3)
    assert not is_compressed(bytes(99) + frame * 2 + bytes(99))


def test_noise_and_silence_are_not_compressed() -> None:
    assert not is_compressed(NOISE[: 1 << 18]) and not is_compressed(bytes(1 << 18))
