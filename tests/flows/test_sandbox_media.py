"""The sandbox's files and faults through the whole gateway: every format decodes in another library, and every
operation fails as the request demands."""

import io
from base64 import b64decode
from pathlib import Path
from typing import Any

import httpx
import pytest
import soundfile
from openai import OpenAI
from PIL import Image
from support.gateways import LocalGateway
from support.media import sdk_of
from support.shared import Share

ROOT = Path(__file__).resolve().parents[2]
TEXT = "The quick brown fox jumps over the lazy dog, and then it rests for a while."
SECONDS = len(TEXT) / 15
FAULT = "[[sandbox: status=429 retry_after=2]]"


@pytest.fixture
def installation(share: Share) -> LocalGateway:
    return share.gateway({})


@pytest.fixture
def sdk(installation: LocalGateway) -> OpenAI:
    return sdk_of(installation)


@pytest.mark.parametrize("format", ["png", "jpeg", "webp"])
def test_every_format_of_images_decodes_and_has_the_requested_size(sdk: OpenAI, format: Any) -> None:
    size: Any = "200x120"
    first_image, second_image = (
        Image.open(io.BytesIO(b64decode(answer.data[0].b64_json)))
        for answer in (
            sdk.images.generate(model="sandbox/sandbox-image", prompt=prompt, size=size, output_format=format)
            for prompt in ("a fox", "a cow")
        )
    )
    assert first_image.format == format.upper() and first_image.size == second_image.size == (200, 120)
    (near,), (far,) = (picture.convert("RGB").getcolors() for picture in (first_image, second_image))
    assert near[0] == 200 * 120 and near[1] != far[1]  # one colour, which depends on the prompt


def test_images_on_their_way_stream_before_the_image(sdk: OpenAI) -> None:
    stream = sdk.images.generate(model="sandbox/sandbox-image", prompt="fox", stream=True, partial_images=2)
    events = list(stream)
    assert [event.type.partition(".")[2] for event in events] == ["partial_image", "partial_image", "completed"]
    assert len({event.b64_json for event in events}) == 3 and events[-1].usage.output_tokens == 1056 + 200


@pytest.mark.parametrize("format", ["wav", "flac", "mp3", "opus", "aac", "pcm"])
def test_every_format_of_speech_is_as_long_as_its_text(sdk: OpenAI, format: Any) -> None:
    sound = sdk.audio.speech.create(
        model="sandbox/sandbox-speak", input=TEXT, voice="calm", response_format=format
    ).content
    if format == "pcm":  # sixteen bits, one channel, 16 kHz
        assert len(sound) / 2 / 16_000 == pytest.approx(SECONDS, abs=0.06)
    elif format == "aac":
        assert sum(1 for _ in adts_frames(sound)) * 1024 / 44_100 == pytest.approx(SECONDS, abs=0.06)
    else:
        samples, rate = soundfile.read(io.BytesIO(sound))
        assert len(samples) / rate == pytest.approx(SECONDS, abs=0.06)


def adts_frames(sound: bytes) -> Any:
    """The frames of an ADTS stream, each by its own length (ISO/IEC 13818-7, 6.2)."""
    at = 0
    while at < len(sound):
        assert sound[at] == 0xFF and sound[at + 1] & 0xF6 == 0xF0
        size = (sound[at + 3] & 3) << 11 | sound[at + 4] << 3 | sound[at + 5] >> 5
        yield sound[at : at + size]
        at += size
    assert at == len(sound)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/embeddings", {"model": "sandbox/sandbox-embed", "input": ["a", FAULT]}),
        ("/images/generations", {"model": "sandbox/sandbox-image", "prompt": FAULT}),
        ("/audio/speech", {"model": "sandbox/sandbox-speak", "input": FAULT, "voice": "calm"}),
        ("/rerank", {"model": "sandbox/sandbox-rerank", "query": FAULT, "documents": ["a"]}),
        ("/moderations", {"model": "sandbox/sandbox-moderate", "input": FAULT}),
        (
            "/ocr",
            {
                "model": "sandbox/sandbox-read",
                "document": {"type": "document_url", "document_url": "https://a.example", "document_name": FAULT},
            },
        ),
        (
            "/systemone",
            {
                "model": "sandbox/sandbox-decide",
                "state": FAULT,
                "questions": {"q": {"type": "noul", "instructions": "is it?"}},
            },
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_operation_fails_as_its_directive_says(
    installation: LocalGateway, path: str, body: dict[str, Any]
) -> None:
    with httpx.Client(timeout=20) as http:
        answer = http.post(installation.url + path, json=body, headers={"Authorization": f"Bearer {installation.key}"})
    assert answer.status_code == 429 and answer.headers["retry-after"] == "2", answer.text


def test_forms_fail_as_their_directive_says(installation: LocalGateway) -> None:
    sound = sdk_of(installation).audio.speech.create(model="sandbox/sandbox-speak", input="x", voice="calm").content
    picture = b"\x89PNG\r\n\x1a\n" + bytes(32)
    for path, fields, file in (
        ("/audio/transcriptions", {"model": "sandbox/sandbox-transcribe", "prompt": FAULT}, ("file", "a.mp3", sound)),
        ("/audio/translations", {"model": "sandbox/sandbox-transcribe", "prompt": FAULT}, ("file", "a.mp3", sound)),
        ("/images/edits", {"model": "sandbox/sandbox-image", "prompt": FAULT}, ("image", "a.png", picture)),
    ):
        with httpx.Client(timeout=20) as http:
            headers = {"Authorization": f"Bearer {installation.key}"}
            answer = http.post(installation.url + path, data=fields, files={file[0]: file[1:]}, headers=headers)
        assert answer.status_code == 429, answer.text


@pytest.mark.parametrize("fault", ["cut=0", "malformed"])
def test_a_stream_of_images_that_breaks_raises_in_the_sdk(sdk: OpenAI, fault: str) -> None:
    with pytest.raises(Exception) as caught:
        list(sdk.images.generate(model="sandbox/sandbox-image", prompt=f"[[sandbox: {fault}]] fox", stream=True))
    assert type(caught.value).__module__.startswith(("openai", "httpx"))


def test_the_example_of_the_documents_works_without_any_key(sdk: OpenAI, capsys: pytest.CaptureFixture[str]) -> None:
    section = (ROOT / "docs" / "clients.md").read_text().partition("## Vectors, images and sound")[2]
    code = section.partition("```python\n")[2].partition("```")[0]
    exec(compile(code, "docs/clients.md", "exec"), {"client": sdk})
    count, size, transcript = capsys.readouterr().out.strip().split(" ", 2)
    assert count == "2" and int(size) > 100 and transcript.startswith("A sound of ")
