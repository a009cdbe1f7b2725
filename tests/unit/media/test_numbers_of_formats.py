"""Durations by the numbers in the standards of sound files."""

import struct

import pytest
from support.sound_files import box, element, m4a, ogg_of_packets, webm

from gateway.media.frame_counting import Unclear
from gateway.media.lossless_sounds import CRC
from gateway.media.mp4_sounds import aac_seconds
from gateway.media.ogg_sounds import opus_seconds
from gateway.media.sounds import length_of
from gateway.providers.sandbox import speech as made
from gateway.runtime.large_files import StoredFile


def ms(data: bytes) -> tuple[int, int]:
    found = length_of(StoredFile.of(data))
    return found.likely_ms, found.foreseen_ms


def flac(block: int, rate: int, frames: int) -> bytes:
    """Return heads of frames with these codes, in a file that declares the highest rate of all."""
    head = bytes((0xFF, 0xF8, block << 4 | rate, 0, 0))
    check = 0
    for byte in head:
        check = CRC[check ^ byte]
    described = bytes(10) + (655_350 << 4).to_bytes(3, "big") + bytes(21)
    return b"fLaC\x80\0\0\x22" + described + (head + bytes((check,))) * frames


def test_frames_of_flac_have_the_samples_and_the_rate_of_their_codes() -> None:
    # RFC 9639, 9.1.1 and 9.1.2.
    blocks = {1: 192, 2: 576, 3: 1152, 4: 2304, 5: 4608, 8: 256, 9: 512, 10: 1024, 11: 2048, 12: 4096, 15: 32_768}
    for code, samples in blocks.items():
        assert ms(flac(code, 9, 441))[1] == pytest.approx(samples * 10, abs=1), code
    kilohertz = (88.2, 176.4, 192, 8, 16, 22.05, 24, 32, 44.1, 48, 96)
    for code, rate in enumerate(kilohertz, 1):
        assert ms(flac(12, code, 100))[1] == pytest.approx(409_600 / rate, abs=1), code


def test_a_packet_of_opus_lasts_as_long_as_its_configuration_says() -> None:
    # RFC 6716, table 2: SILK in three bandwidths, hybrid in two, CELT in four.
    expected = [10, 20, 40, 60] * 3 + [10, 20] * 2 + [2.5, 5, 10, 20] * 4
    assert [opus_seconds(bytes((number << 3,))) * 1000 for number in range(32)] == expected
    assert opus_seconds(bytes((3 << 3 | 1,))) == 0.12  # two frames
    assert opus_seconds(bytes((16 << 3 | 3, 6))) == 0.015  # six frames


def test_frames_of_amr_are_counted_by_their_types() -> None:
    # RFC 4867, 5.3: bytes of a frame with its header, by type.
    narrow = (13, 14, 16, 18, 20, 21, 27, 32, 6)
    wide = (18, 24, 33, 37, 41, 47, 51, 59, 61, 6)
    for signature, sizes in ((b"#!AMR\n", narrow), (b"#!AMR-WB\n", wide)):
        for kind, size in enumerate(sizes):
            assert ms(signature + (bytes((kind << 3,)) + bytes(size - 1)) * 50)[0] == 1000, (signature, kind)


def test_usual_kinds_of_aac_have_frames_of_1024_samples() -> None:
    for kind in (1, 2, 3, 4, 5, 29):  # Main, LC, SSR, LTP, and with replicated bands and parametric stereo
        assert aac_seconds(bytes((kind << 3 | 2, 0))) == 1024 / 44_100
    for kind in (6, 17, 20, 22, 23):
        with pytest.raises(Unclear):
            aac_seconds(bytes((kind << 3 | 2, 0)))


def with_track(recording: bytes, codec: bytes) -> bytes:
    """Return a recording with a second track of this codec, which has a block for each block of the first."""
    first = element(b"\xae", element(b"\xd7", b"\1") + element(b"\x86", b"A_OPUS"))
    second = element(b"\xae", element(b"\xd7", b"\2") + element(b"\x86", codec))
    tracks = b"\x16\x54\xae\x6b"
    block = element(b"\xa3", b"\x81\0\0\x80" + made.OPUS_SILENCE)
    return recording.replace(element(tracks, first), element(tracks, first + second)).replace(
        block, block + element(b"\xa3", b"\x82\0\0\x80xx")
    )


def test_tracks_without_sound_add_nothing() -> None:
    sound = m4a(441)
    video = "avc1 avc2 avc3 avc4 hvc1 hev1 dvh1 dvhe av01 vp08 vp09 mp4v s263 h263 jpeg mjpa mjpb png apch apcn apcs"
    other = "apco ap4h text tx3g wvtt stpp c608 tmcd mett mebx rtp"
    for coding in f"{video} {other}".split():
        assert ms(sound + m4a(50_000, coding.ljust(4).encode())) == ms(sound), coding
    opus = made.make("opus", 1.0)
    for packet in (b"fishead\0", b"fisbone\0", b"\x80theora", b"BBCD\0"):
        assert ms(ogg_of_packets([packet, b"x"]) + opus) == ms(opus), packet
    for codec in (b"V_VP9", b"S_TEXT/UTF8", b"D_WEBVTT/SUBTITLES", b"B_VOBBTN"):
        assert ms(with_track(webm(100), codec)) == ms(webm(100)), codec


def test_blocks_of_webm_count_in_groups_too() -> None:
    block = element(b"\xa3", b"\x81\0\0\x80" + made.OPUS_SILENCE)
    group = element(b"\xa0", element(b"\xa1", b"\x81\0\0\x80" + made.OPUS_SILENCE))
    assert ms(webm(50).replace(block, group)) == ms(webm(50))


def test_samples_of_mp4_count_wherever_they_are_listed() -> None:
    second = ms(m4a(44))[1]
    listed = struct.pack(">I", 44)
    fragment = box(b"moof", box(b"traf", box(b"trun", bytes(4), listed)))
    assert ms(m4a(0) + fragment)[1] == ms(m4a(44).replace(b"stsz", b"stz2"))[1] == second
    for version, entry in ((0, bytes(8) + b"\0\1\0\0"), (1, bytes(16) + b"\0\1\0\0")):
        edits = box(b"edts", box(b"elst", bytes((version, 0, 0, 0)), struct.pack(">I", 3), entry * 3))
        assert ms(m4a(44, extra=edits))[1] == pytest.approx(3 * second, abs=3)
    assert ms(m4a(44).replace(b"ftypM4A ", b"ftypisom"))[1] == second


def test_a_file_with_the_name_of_a_list_at_an_unusual_place_is_counted_by_its_bytes() -> None:
    plain = ms(m4a(44) + box(b"free", bytes(99)))
    for name in (b"stsd", b"stsz", b"stz2", b"trun", b"elst", b"cmov"):
        assert ms(m4a(44) + box(b"free", bytes(90) + name + bytes(5)))[1] > plain[1], name
