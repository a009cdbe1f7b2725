"""Sounds, images and documents of any bytes: recognised or refused within a bounded number of reads, never a crash."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pdfs import packed

from gateway.errors import InvalidRequest
from gateway.media import frame_counting, pdf_program
from gateway.providers.sandbox import ocr as sandbox_ocr
from gateway.providers.sandbox import speech as made
from gateway.providers.sandbox.images import png
from gateway.runtime.large_files import StoredFile
from gateway.surfaces.bodies import uploads as uploads_module
from gateway.surfaces.openai import ocr

WELL_MADE = [made.make(kind, 0.2) for kind in ("wav", "flac", "mp3", "opus", "aac")] + [png(2, 2, "")]
STARTS = [
    b"ID3\x03\0\0\0\0\0\x05",
    b"fLaC\0\0\0\x22",
    b"OggS\0\x02",
    b"\0\0\0\x20ftypM4A ",
    b"#!AMR\n",
    b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0",
    b"FORM\0\0\0\0AIFFCOMM",
    b"\xff\xfb\x90d",
    b"\xff\xf1P\x80",
    b"\x1a\x45\xdf\xa3",
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    b"\xff\xd8\xff\xe0",
    b"RIFF\0\0\0\0WEBPVP8 ",
]
CRUMBS = [
    *(b"\0\0\0\x08moov", b"\0\0\0\x08trak", b"\xff\xff\xff\xffmoov", b"\0\0\0\x6cmvhd", b"data\0\0\0\0"),
    *(b"\x7f\xff\xff\xff", b"\xff", b"\0", b"OggS", b"\x01vorbis", b"OpusHead", b"LIST", b"id3 ", b"Xing\0\0\0\x03"),
]
ANY = st.lists(st.sampled_from(CRUMBS) | st.binary(max_size=12), max_size=40).map(b"".join)
FROM_SCRATCH = st.tuples(st.sampled_from(STARTS), ANY).map(b"".join)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = draw(st.sampled_from(WELL_MADE))
    at = draw(st.integers(0, len(data)))
    spoilt = draw(st.sampled_from(CRUMBS) | st.binary(max_size=8))
    return data[:at] + spoilt + data[at + draw(st.integers(0, 12)) :]


@given(FROM_SCRATCH | damaged() | st.binary(max_size=100))
def test_a_sound_of_any_bytes_has_a_length_or_is_not_a_sound(data: bytes) -> None:
    looks: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        read = frame_counting.Bytes.at
        patch.setattr(frame_counting.Bytes, "at", lambda self, *given: looks.append(1) or read(self, *given))
        try:
            found = uploads_module.detect_sound(StoredFile.of(data), "file")
        except InvalidRequest:
            return
    assert 0 < found.length.likely_ms <= found.length.foreseen_ms <= found.length.max_ms and len(
        looks
    ) <= 50 + 300 * len(data)


@given(FROM_SCRATCH | damaged() | st.binary(max_size=100))
def test_a_picture_of_any_bytes_is_one_or_refused(data: bytes) -> None:
    try:
        assert uploads_module.detect_picture(StoredFile.of(data), "image").media_type.startswith("image/")
    except InvalidRequest:
        return


PDF = st.lists(
    st.sampled_from(
        [b"%PDF-1.7\n", b"/Type /Page ", b"/Type/Pages", b"/Count 3 ", b"/Count 999999", b"stream\r\n", b"stream"]
    )
    | st.sampled_from([b"endstream", b"(", b")", b"\\", b" Tj", b"'", b"BT (a) Tj ET", b"\n", b"x" * 40]),
    max_size=40,
).map(b"".join)


@given(PDF)
def test_a_document_of_any_bytes_has_so_many_pages_at_most(data: bytes) -> None:
    try:
        pages, maximum, text = pdf_program.read(data)
    except Exception:  # the program fails as well, and its caller then assumes the longest file
        pages, maximum, text = 1, 1, 0
    assert 1 <= pages <= maximum and text >= 0
    assert len(sandbox_ocr._pages_of(data)) <= sandbox_ocr.MAX_PAGES


@given(st.integers(1, 30), st.integers(-1, 40), st.binary(max_size=20), st.integers(0, 400), st.binary(max_size=4))
def test_a_damaged_pdf_has_no_fewer_pages_than_its_tree(
    pages: int, declared: int, decoy: bytes, at: int, spoilt: bytes
) -> None:
    data = packed(pages, declared=declared, decoy=b"%" + decoy.replace(b"\n", b"").replace(b"\r", b"") + b"\n")
    assert pdf_program.read(data)[1] >= pages
    try:
        found = pdf_program.read(data[:at] + spoilt + data[at + len(spoilt) :])
    except Exception:
        return
    assert 1 <= found[0] <= found[1]


@given(st.text(alphabet="0123456789-, x", max_size=30) | st.lists(st.integers(-2, 2**64), max_size=5))
def test_pages_are_numbers_or_refused(given_pages: str | list[int]) -> None:
    try:
        found = ocr._pages_of(given_pages)
    except InvalidRequest:
        return
    assert found is not None and found == sorted(set(found)) and len(found) <= 2 * ocr.MAX_PAGES + 2
