"""Durations of audio are counted by frames, whatever the header declares."""

import io
import struct
import time

import pytest
import soundfile
from support.sound_files import box, m4a, ogg_of_packets, wave, webm, xing

from gateway.media import frame_counting as frames
from gateway.media.mp4_sounds import MIN_MPEG_BYTES_PER_SECOND
from gateway.media.sounds import length_of
from gateway.providers.sandbox import speech as made
from gateway.runtime.large_files import StoredFile

HOURS_MS = 16_384_000
MAX_PROCESSOR_S = 20


def ms(data: bytes) -> tuple[int, int]:
    """Return the likely duration and the longest by frames."""
    found = length_of(StoredFile.of(data))
    assert found.foreseen_ms <= found.max_ms
    return found.likely_ms, found.foreseen_ms


@pytest.mark.parametrize("kind", ["wav", "flac", "mp3", "opus", "aac"])
def test_sounds_of_the_sandbox_are_counted_to_a_frame(kind: str) -> None:
    likely, maximum = ms(made.make(kind, 30.0))
    assert likely == maximum and 29_990 < maximum < 30_100


@pytest.mark.parametrize(
    ("kind", "coding"),
    [
        *[("WAV", one) for one in ("PCM_U8", "PCM_16", "PCM_24", "FLOAT", "ULAW", "ALAW", "IMA_ADPCM", "MS_ADPCM")],
        *[("WAVEX", "PCM_24"), ("AIFF", "PCM_16"), ("FLAC", "PCM_24"), ("OGG", "VORBIS"), ("OGG", "OPUS")],
        ("MP3", "MPEG_LAYER_III"),
    ],
)
def test_silence_of_usual_encoders_is_counted_exactly_enough(kind: str, coding: str) -> None:
    file, rate = io.BytesIO(), 48_000
    soundfile.write(file, [0.0] * rate * 4, rate, format=kind, subtype=coding)
    likely, maximum = ms(file.getvalue())
    assert likely == maximum and 3_990 <= maximum <= 4_500


@pytest.mark.slow
def test_hours_of_silence_whose_header_tells_a_second_count_as_hours() -> None:
    """A key with a budget of $0.05 spent $13 on audio that was reserved as 50 seconds."""
    file = io.BytesIO()
    soundfile.write(file, [0.0] * 8_000 * 60, 8_000, format="FLAC", subtype="PCM_16")
    data = bytearray(file.getvalue())
    data[21:26] = bytes([data[21] & 0xF0]) + struct.pack(">I", 8_000)  # samples in all
    assert ms(bytes(data))[1] >= 60_000
    assert ms(xing(38, HOURS_MS // 26))[1] >= HOURS_MS
    assert ms(wave(100, 8_000, 8, 1, declared_s=1))[1] >= 100_000
    assert ms(m4a(705_600, declared_ms=1000))[1] == HOURS_MS
    assert ms(webm(1000)) == (20_000, 20_000)


def test_pages_of_ogg_within_a_page_that_a_decoder_rejects_count() -> None:
    inner = made.make("opus", 60.0)
    outer = struct.pack("<4sBBQIIIB", b"OggS", 0, 0, 0, 1, 0, 0, 255) + b"\xff" * 255
    assert ms(made.make("opus", 1.0) + outer + inner)[1] >= 60_000


def test_tags_are_no_sound_and_large_ones_count_as_some() -> None:
    sound = made.MP3_FRAME * 100
    small = b"ID3\3\0\0\0\0\x0f\x7f" + b"\xff" * 2047
    assert ms(small + sound) == ms(sound)
    large = b"ID3\3\0\0\x01\x7f\x7f\x7f" + bytes((2 << 21) - 1)
    assert ms(large + sound)[1] > ms(sound)[1] + 4_000_000
    flac = io.BytesIO()
    soundfile.write(flac, [0.0] * 480_000, 48_000, format="FLAC", subtype="PCM_16")
    assert ms(small + flac.getvalue())[1] >= 10_000


@pytest.mark.parametrize(
    "data",
    [
        wave(1, 8_000, 8, 1, coding=0x31),
        wave(1, 8_000, 8, 1).replace(b"data", b"fmt "),
        made.MP3_FRAME[:4] + b"\0" * 8_000,
        b"fLaC" + bytes(8_000),
        b"OggS" + bytes(8_000),
        m4a(0) + bytes(8_000),
        b"\x1a\x45\xdf\xa3" + bytes(8_000),
        b"#!AMR_MC1.0\n" + bytes(8_000),
    ],
    ids=["gsm", "two formats", "one frame", "no frames", "no packets", "no samples", "no blocks", "amr of channels"],
)
def test_a_sound_without_frames_that_count_lasts_as_long_as_its_bytes_may(data: bytes) -> None:
    likely, maximum = ms(data)
    assert maximum >= 8_000 // frames.MIN_BYTES_PER_SECOND * 1000 * 0.15 and likely < maximum


@pytest.mark.parametrize(
    ("kind", "coding", "place", "rate"),
    [
        ("WAV", "G721_32", 24, b"\1\0\0\0"),
        ("WAV", "GSM610", 24, b"\1\0\0\0"),
        ("AIFF", "IMA_ADPCM", -1, b"\x3f\xff\x80\0\0\0\0\0\0\0"),
        ("AIFF", "PCM_S8", -1, b"\x3f\xff\x80\0\0\0\0\0\0\0"),
        ("AIFF", "PCM_S8", -1, b"\x3f\0\x80\0\0\0\0\0\0\0"),
    ],
)
def test_a_sound_with_a_rate_of_one_hertz_lasts_as_long_as_a_decoder_plays_it(
    kind: str, coding: str, place: int, rate: bytes
) -> None:
    """A decoder played 11 days where 30 hours were reserved: the least bytes of a second hold for usual rates."""
    file = io.BytesIO()
    soundfile.write(file, [0.0] * 8_000, 8_000, format=kind, subtype=coding)
    data = bytearray(file.getvalue())
    if place < 0:
        place = data.index(b"COMM") + 16
    data[place : place + len(rate)] = rate
    with soundfile.SoundFile(io.BytesIO(data)) as decoded:
        samples = 0
        while block := len(decoded.read(4_096)):
            samples += block
        seconds = samples / decoded.samplerate
    assert seconds >= 8_000 and ms(bytes(data))[1] >= seconds * 1_000


@pytest.mark.parametrize(
    "data", [m4a(10, b"ac-3"), webm(10, b"A_FLAC"), webm(10, b"A_VORBIS")], ids=["ac3", "flac", "vorbis"]
)
def test_a_codec_whose_packets_are_not_known_counts_by_the_bytes_of_the_file(data: bytes) -> None:
    assert ms(data)[1] >= len(data) // frames.MIN_BYTES_PER_SECOND * 1000


@pytest.mark.parametrize("kind", [b"\x69", b"\x6b"], ids=["MPEG-2", "MPEG-1"])
def test_mpeg_audio_in_mp4_counts_by_its_bytes_because_a_sample_may_hold_many_frames(kind: bytes) -> None:
    data = m4a(1).replace(b"\x04\x11\x40", b"\x04\x11" + kind) + bytes(25_000)
    assert ms(data)[1] == pytest.approx(len(data) / MIN_MPEG_BYTES_PER_SECOND * 1000, abs=1)


@pytest.mark.parametrize("marker", [b"", b"\x7fFLAC\1\0\0\1"], ids=["first mapping", "present mapping"])
def test_flac_in_ogg_is_counted_by_its_frames(marker: bytes) -> None:
    head, *further = made.make("flac", 2.0).split(b"\xff\xf8")
    likely, maximum = ms(ogg_of_packets([marker + head, *[b"\xff\xf8" + frame for frame in further]]))
    assert likely == maximum and 1_990 < maximum < 2_100


@pytest.mark.parametrize("shape", [(8_000, 8, 1), (44_100, 16, 2), (96_000, 24, 2), (192_000, 24, 2)], ids=str)
def test_sound_of_the_highest_quality_counts_at_its_own_rate(shape: tuple[int, int, int]) -> None:
    assert 2_000 <= ms(wave(2, *shape))[1] < 2_020


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfb\x90\x64" + b"\xff\xe0" * 12_000_000,
        b"fLaC" + b"\xff\xf8\x12\x34" * 6_000_000,
        b"OggS" * 6_000_000,
        b"RIFF\xff\xff\xff\xffWAVE" + b"abcd\0\0\0\0" * 3_000_000,
        box(b"ftyp", b"M4A ") + b"\0\0\0\x08moov" * 3_000_000,
        b"\x1a\x45\xdf\xa3" + b"\x80\xa3\x80" * 8_000_000,
        b"#!AMR\n" + b"\xff" * 24_000_000,
    ],
    ids=["mp3", "flac", "ogg", "wav", "mp4", "webm", "amr"],
)
def test_a_file_that_is_built_to_be_looked_at_byte_by_byte_is_given_up(data: bytes) -> None:
    started = time.process_time()
    assert ms(data)[1] > 1_000_000
    assert time.process_time() - started < MAX_PROCESSOR_S


@pytest.mark.parametrize("rest", range(4))
def test_a_page_in_the_last_bytes_of_a_file_is_found_once(rest, monkeypatch):
    """A search in the last three bytes began again at the start of the file: a file of fifty bytes occupied a thread of
    the worker for ever."""
    find, searches = frames.Bytes.find, []

    def count_search(self, needle, place):
        searches.append(place)
        assert len(searches) < 10
        return find(self, needle, place)

    monkeypatch.setattr(frames.Bytes, "find", count_search)
    maximum = ms(b"OggS\0\x02" + bytes(40) + b"OggS" + bytes(rest))[1]
    assert maximum > 0 and searches == sorted(searches)
