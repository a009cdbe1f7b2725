import random

import pytest

from gateway.neutral.sound_length import SoundLength
from gateway.providers.media_codecs import as_wav
from gateway.providers.sandbox import speech

SECONDS = 12.5


def length_of(data, step):
    counted = SoundLength()
    for at in range(0, len(data), step):
        counted.add(data[at : at + step])
    return counted.milliseconds / 1000


@pytest.mark.parametrize("step", [1, 7, 1000, 1 << 30])
@pytest.mark.parametrize("format", ["mp3", "opus", "aac", "flac", "wav"])
def test_every_format_has_its_length_however_its_bytes_come(format, step):
    assert length_of(speech.make(format, SECONDS), step) == pytest.approx(SECONDS, abs=0.06)


def test_bare_pcm_is_counted_by_its_bytes():
    assert length_of(bytes(48_000 * 3), 4096) == 3
    assert length_of(b"\xff\xff\x10\x00" * 12_000, 4096) == 1  # no frame of MP3, although it begins like one


def test_two_files_of_ogg_in_a_row_last_as_long_as_both():
    assert length_of(speech.make("opus", 2.0) + speech.make("opus", 3.0), 100) == pytest.approx(5)


def test_a_streamed_wav_has_no_length_in_its_head():
    sound = bytearray(as_wav(bytes(32_000), 16_000))
    sound[4:8] = sound[40:44] = b"\xff\xff\xff\xff"
    assert length_of(bytes(sound), 999) == 1


def test_bytes_between_frames_are_skipped():
    sound = speech.make("mp3", 1.0)
    assert length_of(sound + bytes(500) + sound, 100) == pytest.approx(2, abs=0.06)


@pytest.mark.parametrize("seed", range(20))
def test_no_bytes_break_the_count(seed):
    chance = random.Random(seed)
    sound = bytearray(speech.make(chance.choice(["mp3", "opus", "aac", "flac", "wav"]), 1.0))
    for _ in range(50):
        sound[chance.randrange(len(sound))] = chance.randrange(256)
    assert length_of(bytes(sound), chance.randrange(1, 5000)) >= 0
