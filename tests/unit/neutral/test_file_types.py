import pytest

from gateway.neutral.file_types import type_of


@pytest.mark.parametrize(
    ("head", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "image/png"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "image/jpeg"),
        (b"GIF87a\x01\0\x01\0", "image/gif"),
        (b"GIF89a\x01\0\x01\0", "image/gif"),
        (b"BM\x46\0\0\0", "image/bmp"),
        (b"RIFF\x24\0\0\0WEBPVP8 ", "image/webp"),
        (b"\0\0\0\x20ftypavif", "image/avif"),
        (b"\0\0\0\x20ftypheic", "image/heic"),
        (b"\0\0\0\x20ftypheix", "image/heic"),
        (b"\0\0\0\x20ftypmif1", "image/heif"),
        (b"%PDF-1.7\n", "application/pdf"),
        (b"RIFF\x24\0\0\0WAVEfmt ", "audio/wav"),
        (b"FORM\0\0\0\x24AIFFCOMM", "audio/aiff"),
        (b"FORM\0\0\0\x24AIFCFVER", "audio/aiff"),
        (b"ID3\x04\0\0\0\0\0\0", "audio/mpeg"),
        (b"\xff\xfb\x90\x64", "audio/mpeg"),
        (b"\xff\xf1\x50\x80", "audio/aac"),
        (b"OggS\0\x02", "audio/ogg"),
        (b"fLaC\0\0\0\x22", "audio/flac"),
        (b"#!AMR\n", "audio/amr"),
        (b"\0\0\0\x20ftypM4A ", "audio/mp4"),
        (b"\0\0\0\x20ftypisom", "video/mp4"),
        (b"\x1a\x45\xdf\xa3\x9f\x42\x86", "video/webm"),
        (b"RIFF\x24\0\0\0AVI LIST", ""),
        (b"Hello, world", ""),
        (b"", ""),
    ],
)
def test_a_file_has_the_type_that_its_first_bytes_show(head: bytes, media_type: str) -> None:
    assert type_of(head) == media_type
