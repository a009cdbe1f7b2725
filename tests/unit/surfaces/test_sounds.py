"""How long a sound lasts is asked of its container, within a number of looks at it."""

import pytest

from gateway.files import StoredFile
from gateway.providers.sandbox import sounds as made
from gateway.surfaces import sounds


@pytest.mark.parametrize("kind", ["wav", "flac", "mp3"])
def test_a_well_made_sound_takes_few_looks(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(sounds, "MOST_READS", 2000)
    found = sounds.look_at(StoredFile.of(made.make(kind, 1.0, "")), "file")
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
    read = sounds._CountedReader.read
    monkeypatch.setattr(
        sounds._CountedReader, "read", lambda self, *given: reads.append(1) or read(self, *given), raising=True
    )
    found = sounds.look_at(StoredFile.of(data), "file")
    assert len(reads) <= sounds.MOST_READS + 1 and found.most_ms > found.likely_ms
