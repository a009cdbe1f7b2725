"""The format of an uploaded sound, by its first bytes."""

import pytest

from gateway.errors import InvalidRequest
from gateway.runtime.large_files import StoredFile
from gateway.surfaces.bodies import audio_uploads as audio_uploads_module

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
    sound = audio_uploads_module.detect_format(StoredFile.of(head + bytes(64)), "file")
    assert (sound.media_type, sound.filename) == (media_type, filename)


def test_a_file_without_sound_is_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        audio_uploads_module.detect_format(StoredFile.of(b"\x89PNG\r\n\x1a\n" + bytes(64)), "file")
    assert caught.value.code == "unsupported_media"
