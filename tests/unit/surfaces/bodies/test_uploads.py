"""Images in JSON bodies: large ones are stored on the disk, and invalid base64 is reported by its field."""

import tracemalloc
from base64 import b64encode
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.errors import InvalidRequest
from gateway.providers.sandbox.images import png
from gateway.runtime.large_files import StoredFile
from gateway.surfaces.bodies import uploads as uploads_module
from gateway.surfaces.web.http import Inbound

PNG = png(8, 8, "x")


def load(folder: Path, text: str) -> Any:
    services: Any = SimpleNamespace(settings=SimpleNamespace(spool_dir=str(folder)))
    inbound = Inbound("POST", "/v1/images/edits", {})
    return uploads_module.load(services, inbound, f"data:image/png;base64,{text}", "images.0.image_url")


def test_a_large_picture_of_a_data_url_lies_on_the_disk(tmp_path: Path) -> None:
    data = PNG + bytes(12 << 20)
    text = b64encode(data).decode()
    tracemalloc.start()
    found = load(tmp_path, text)
    peak = tracemalloc.get_traced_memory()[1] - len(text)  # the data URL is built here only once
    tracemalloc.stop()
    assert found.file.on_disk and found.media_type == "image/png" and len(found.file) == len(data)
    assert b"".join(found.file.pieces()) == data and peak < 4 << 20


@pytest.mark.parametrize(
    "text",
    ["%%", "AAA", b64encode(PNG).decode() + "=", "AA==" + "A" * (1 << 18), "A" * ((1 << 18) - 1) + "=" + "AAAA"],
    ids=len,
)
def test_invalid_base64_is_reported_by_its_field(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        load(tmp_path, text)
    assert (caught.value.param, caught.value.code) == ("images.0.image_url", "invalid_parameters")


# The format of an uploaded sound, by its first bytes.

MP4 = b"\0\0\0\x20ftyp%b\0\0\0\0%b" + bytes(12)


@pytest.mark.parametrize(
    ("head", "media_type", "filename"),
    [
        (b"RIFF\x24\0\0\0WAVEfmt ", "audio/wav", "sound.wav"),
        (b"FORM\0\0\0\x24AIFFCOMM", "audio/aiff", "sound.aiff"),
        (b"ID3\x04\0\0\0\0\0\0", "audio/mpeg", "sound.mp3"),
        (b"\xff\xf1\x50\x80\x02\x1f\xfc", "audio/aac", "sound.aac"),
        (b"fLaC\0\0\0\x22", "audio/flac", "sound.flac"),
        (b"OggS\0\x02", "audio/ogg", "sound.ogg"),
        (b"#!AMR\n", "audio/amr", "sound.amr"),
        (MP4 % (b"M4A ", b"M4A "), "audio/mp4", "sound.m4a"),
        (MP4 % (b"isom", b"mp42"), "audio/mp4", "sound.m4a"),
        (b"\x1a\x45\xdf\xa3\x9f\x42\x82\x84webm", "audio/webm", "sound.webm"),
    ],
)
def test_a_provider_gets_a_sound_with_the_type_and_name_of_its_content(
    head: bytes, media_type: str, filename: str
) -> None:
    sound = uploads_module.detect_sound(StoredFile.of(head + bytes(64)), "file")
    assert (sound.media_type, sound.filename) == (media_type, filename)


def test_a_file_without_sound_is_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        uploads_module.detect_sound(StoredFile.of(b"\x89PNG\r\n\x1a\n" + bytes(64)), "file")
    assert caught.value.code == "unsupported_media"
