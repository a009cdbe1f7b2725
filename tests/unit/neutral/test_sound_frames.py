"""Sizes and durations of frames of compressed sound, by the tables of their standards."""

import pytest

from gateway.neutral.sound_length import adts_frame, is_compressed, mpeg_frame

MPEG_1, MPEG_2, MPEG_25 = 3, 2, 0
LAST = 14  # the index of the highest bit rate; 15 is reserved


@pytest.mark.parametrize(
    ("version", "layer", "bits", "rate", "size", "samples", "hertz"),
    [
        (MPEG_1, 3, 9, 0, 128_000 * 144 // 44_100, 1152, 44_100),
        (MPEG_1, 3, LAST, 1, 320_000 * 144 // 48_000, 1152, 48_000),
        (MPEG_1, 2, LAST, 2, 384_000 * 144 // 32_000, 1152, 32_000),
        (MPEG_1, 1, LAST, 2, 448_000 * 12 // 32_000 * 4, 384, 32_000),
        (MPEG_2, 3, LAST, 0, 160_000 * 72 // 22_050, 576, 22_050),
        (MPEG_2, 2, LAST, 1, 160_000 * 144 // 24_000, 1152, 24_000),
        (MPEG_2, 1, LAST, 2, 256_000 * 12 // 16_000 * 4, 384, 16_000),
        (MPEG_25, 3, 1, 0, 8_000 * 72 // 11_025, 576, 11_025),
        (MPEG_25, 3, 1, 1, 8_000 * 72 // 12_000, 576, 12_000),
        (MPEG_25, 3, 1, 2, 8_000 * 72 // 8_000, 576, 8_000),
    ],
)
def test_a_frame_of_mpeg_lasts_as_long_as_its_samples(
    version: int, layer: int, bits: int, rate: int, size: int, samples: int, hertz: int
) -> None:
    def head(index: int) -> bytes:
        return bytes((0xFF, 0xE1 | version << 3 | (4 - layer) << 1, index << 4 | rate << 2, 0))

    assert mpeg_frame(head(bits)) == (size, samples / hertz)
    assert mpeg_frame(head(15)) == mpeg_frame(head(0)) == (0, 0.0)


def test_sampling_rates_of_aac_halve_every_third_step() -> None:
    def seconds(index: int) -> float:
        return adts_frame(bytes((0xFF, 0xF1, index << 2, 0, 0x10, 0, 0)))[1]

    assert seconds(3) == 1024 / 48_000 and seconds(4) == 1024 / 44_100 and seconds(5) == 1024 / 32_000
    assert all(seconds(index + 3) == 2 * seconds(index) for index in range(9))
    assert seconds(12) == 1024 / 7_350
    assert seconds(13) == seconds(14) == seconds(15) == 0


# ETSI TS 102 366, table 4.13: 16-bit words of a frame by rate and code.
@pytest.mark.parametrize(
    ("rate", "code", "words"),
    [(0, 0, 64), (0, 37, 1280), (1, 0, 69), (1, 1, 70), (1, 36, 1393), (1, 37, 1394), (2, 0, 96), (2, 37, 1920)],
)
def test_frames_of_ac_3_are_recognized_by_their_distance(rate: int, code: int, words: int) -> None:
    def frames(size: int) -> bytes:
        return (b"\x0b\x77\0\0" + bytes((rate << 6 | code, 8 << 3))).ljust(size, b"\0") * 3 + bytes(8)

    assert is_compressed(frames(2 * words))
    assert not is_compressed(frames(2 * words + 2))


def test_sound_for_receivers_of_dts_truehd_and_spdif_is_recognized_by_one_word() -> None:
    for mark in ("7ffe8001", "fe7f0180", "1fffe800", "ff1f00e8", "f8726fba", "72f81f4e"):
        assert is_compressed(bytes(3) + bytes.fromhex(mark) + bytes(9)), mark
    assert not is_compressed(bytes(16))
