"""How long a sound lasts is asked of its container, within a number of looks at it."""

import struct

import pytest

from gateway.files import StoredFile
from gateway.providers.sandbox import audio_files as made
from gateway.surfaces import audio_uploads


@pytest.mark.parametrize("kind", ["wav", "flac", "mp3"])
def test_a_well_made_sound_takes_few_looks(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(audio_uploads, "MOST_READS", 2000)
    found = audio_uploads.look_at(StoredFile.of(made.make(kind, 1.0, "")), "file")
    assert found.likely_ms == found.most_ms and 900 < found.most_ms < 1200


@pytest.mark.parametrize(
    "data",
    [
        b"ID3\x03\0\0\0\0\0\0" + b"\xff" * 3_000_000,
        b"fLaC" + b"\x01\0\0\0" * 700_000,
        b"RIFF\xff\xff\xff\xffWAVE" + b"abcd\0\0\0\0" * 400_000,
    ],
    ids=["mp3", "flac", "wav"],
)
def test_a_file_that_is_looked_at_byte_by_byte_is_given_up(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    reads: list[int] = []
    read = audio_uploads._CountedReader.read
    monkeypatch.setattr(
        audio_uploads._CountedReader, "read", lambda self, *given: reads.append(1) or read(self, *given), raising=True
    )
    found = audio_uploads.look_at(StoredFile.of(data), "file")
    assert len(reads) <= audio_uploads.MOST_READS + 1 and found.most_ms > found.likely_ms


def wave(seconds: float, rate: int, bits: int, channels: int, told: float | None = None) -> bytes:
    """PCM; `told` is the length in seconds that its header claims."""
    second = rate * channels * bits // 8
    size = int(seconds * second)
    claimed = size if told is None else int(told * second)
    head = struct.pack("<IHHIIHH", 16, 1, channels, rate, second, channels * bits // 8, bits)
    return (
        b"RIFF" + struct.pack("<I", size + 36) + b"WAVEfmt " + head + b"data" + struct.pack("<I", claimed) + bytes(size)
    )


def xing(frames: int, padding: int) -> bytes:
    """An MP3 whose first frame claims so many frames of 26 ms, before so many bytes."""
    first = bytearray(made.MP3_FRAME)
    first[36:52] = b"Xing" + struct.pack(">III", 3, frames, frames * len(first))
    return bytes(first) + made.MP3_FRAME * (padding // len(made.MP3_FRAME))


def ms_of(data: bytes) -> int:
    found = audio_uploads.look_at(StoredFile.of(data), "file")
    assert found.likely_ms == found.most_ms
    return found.most_ms


def test_a_container_that_shows_too_short_a_length_lasts_as_long_as_its_bytes_at_the_highest_rate() -> None:
    """The length is what is reserved: a header that says a second must not stand for an hour."""
    size = 4_000_000
    assert 70_000 < ms_of(xing(38, size)) < 72_000
    assert 27_000 < ms_of(wave(30, 16_000, 16, 1, told=1)) < 30_000
    longest = wave(1, 192_000, 32, 2)
    assert 1_000 <= ms_of(longest) < 1_010
    # Another coding in a WAVE has no rate that its header could tell.
    coded = bytearray(wave(60, 192_000, 32, 2))
    coded[20:22] = b"\x55\0"
    assert audio_uploads.look_at(StoredFile.of(bytes(coded)), "file").likely_ms > 1_600_000


@pytest.mark.parametrize("shape", [(8_000, 8, 1), (44_100, 16, 2), (96_000, 24, 2), (192_000, 24, 2)], ids=str)
def test_sound_of_the_highest_quality_is_believed(shape: tuple[int, int, int]) -> None:
    """It was not above 500,000 bytes a second, and what was reserved instead was 700 times its price."""
    assert 2_000 <= ms_of(wave(2, *shape)) < 2_020
