"""Media with headers that declare less than they contain: the gateway reserves for the contents, not the header.

`unit/media` has the counts themselves, `test_media_limits.py` several workers and stores.
"""

import struct
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from fakes.upstream import FakeUpstream
from support.gateways import LocalGateway, local_gateway
from support.sound_files import aiff, flac, m4a, ogg, wave, webm, xing
from support.spending import write_mint

from gateway.configuration.settings import Settings
from gateway.providers.sandbox import speech as made

LONG_S, SHORT_S, DECLARED_S = 300, 30, 1
SECOND_NUSD = 30_000_000  # of a transcript
AAC_SAMPLES_PER_SECOND = 44_100 / 1_024
# Sound of some seconds with a header that declares DECLARED_S, if the format has one, for each accepted format.
SOUNDS: dict[str, Callable[[int], bytes]] = {
    "wav": lambda seconds: wave(seconds, 8_000, 8, 1, DECLARED_S),
    "aiff": lambda seconds: aiff(seconds, DECLARED_S),
    "flac": lambda seconds: flac(seconds, DECLARED_S),
    "mp3": lambda seconds: xing(38, round(seconds / 0.026)),
    "opus": lambda seconds: ogg("OPUS", seconds, DECLARED_S),
    "vorbis": lambda seconds: ogg("VORBIS", seconds, DECLARED_S),
    "aac": lambda seconds: made.make("aac", float(seconds)),
    "amr": lambda seconds: b"#!AMR\n" + (b"\x3c" + bytes(31)) * 50 * seconds,
    "m4a": lambda seconds: m4a(round(seconds * AAC_SAMPLES_PER_SECOND), declared_ms=DECLARED_S * 1000),
    "webm": lambda seconds: webm(seconds * 50),
}
HUGE = struct.pack(">II", 2**31 - 1, 2**31 - 1)
PICTURES = {
    "gif of 50,000 frames": b"GIF89a\x01\0\x01\0\0\0\0"
    + b"\x21\xf9\x04\0\0\0\0\0\x2c\0\0\0\0\x01\0\x01\0\0\x02\x02\x44\x01\0" * 50_000
    + b";",
    "gigantic gif": b"GIF89a\xff\xff\xff\xff\0\0\0;",
    "gigantic png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + HUGE + b"\x10\6\0\0\0" + bytes(4),
    "gigantic jpeg": b"\xff\xd8\xff\xc0\0\x11\x08\xff\xff\xff\xff\x03" + bytes(20),
    "gigantic webp": b"RIFF\x1e\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0" + b"\xff" * 6,
    "gigantic bmp": b"BM" + bytes(16) + struct.pack("<ii", 2**31 - 1, 2**31 - 1) + bytes(20),
}
IMAGE_NUSD = 16_384 * 2_000  # the most tokens of an image, at the price of `book`
OUTPUT_NUSD = 10 * 8_000


@pytest.fixture(scope="module")
def mint() -> Iterator[FakeUpstream]:
    with FakeUpstream() as fake:
        yield fake


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lying")


@pytest.fixture
def gateway(settings: Callable[..., Settings], mint: FakeUpstream, folder: Path) -> Iterator[LocalGateway]:
    with local_gateway(settings, **write_mint(folder, mint.url)) as running:
        yield running


def post(gateway: LocalGateway, key: str, path: str, **more: object) -> httpx.Response:
    with httpx.Client(timeout=60) as http:
        return http.post(gateway.address + path, headers={"Authorization": f"Bearer {key}"}, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", SOUNDS)
def test_sound_is_reserved_by_its_frames_whatever_its_header_tells(gateway: LocalGateway, kind: str) -> None:
    limited = gateway.add_organization("limited", 2 * SHORT_S * SECOND_NUSD)
    statuses = [
        post(
            gateway,
            limited,
            "/v1/audio/transcriptions",
            data={"model": "mint/ear"},
            files={"file": ("a.bin", SOUNDS[kind](seconds))},
        ).status_code
        for seconds in (LONG_S, SHORT_S)
    ]
    assert statuses == [402, 200]


@pytest.mark.parametrize("kind", PICTURES)
def test_a_picture_is_reserved_as_one_whatever_its_frames_and_its_size(gateway: LocalGateway, kind: str) -> None:
    address = "data:image/png;base64," + b64encode(PICTURES[kind]).decode()
    part = {"type": "image_url", "image_url": {"url": address}}
    body = {"model": "mint/book", "messages": [{"role": "user", "content": [part]}], "max_tokens": 10}
    poor = gateway.add_organization("poor", IMAGE_NUSD)
    rich = gateway.add_organization("rich", IMAGE_NUSD + 2 * OUTPUT_NUSD)
    statuses = [post(gateway, key, "/v1/chat/completions", json=body).status_code for key in (poor, rich)]
    assert statuses == [402, 200]
