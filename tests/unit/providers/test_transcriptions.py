"""Answers to transcriptions: what subtitles are made of has times, or the answer is the provider's fault."""

import pytest
from support.replies import MemoryReply, json_reply

from gateway.catalogue.entries import Mapping, Provider
from gateway.errors import UpstreamFailed
from gateway.neutral.chat import Requirements
from gateway.neutral.transcriptions import TranscriptionInput, TranscriptionRequest
from gateway.providers.openai.transcriptions import OpenAITranscriptions
from gateway.providers.protocol import Credential, Target
from gateway.runtime.large_files import StoredFile
from gateway.surfaces.openai.transcriptions import write_subtitles

CODEC = OpenAITranscriptions("/audio/transcriptions")


@pytest.mark.parametrize("seconds", [b'"zz"', b'{"a":1}', b"[]", b"true", b"1e999"])
def test_a_segment_without_a_time_is_the_providers_fault(seconds: bytes) -> None:
    body = b'{"text":"Hi","segments":[{"start":0,"end":%b,"text":"Hi"}]}' % seconds
    with pytest.raises(UpstreamFailed):
        CODEC.read(MemoryReply(body, headers={}), False)


def test_a_segment_without_an_end_is_shown_from_its_start() -> None:
    found = CODEC.read(json_reply({"text": "Hi", "segments": [{"start": 1.5, "end": None, "text": "Hi"}]}), False)
    assert "00:00:01.500 --> 00:00:00.000\nHi" in write_subtitles("vtt", found.segments)


@pytest.mark.parametrize(
    ("wanted", "offered", "requested"),
    [
        ("json", ("json",), "json"),
        ("text", ("json",), "json"),
        ("text", ("json", "verbose_json"), "verbose_json"),  # it has the duration, which is billed
        ("srt", ("json", "verbose_json"), "verbose_json"),
        ("vtt", ("json", "verbose_json"), "verbose_json"),
        ("verbose_json", ("json", "verbose_json"), "verbose_json"),
        ("diarized_json", ("json", "diarized_json"), "diarized_json"),
    ],
)
def test_the_format_of_a_caller_is_made_from_one_that_the_model_has(
    wanted: str, offered: tuple[str, ...], requested: str
) -> None:
    content = TranscriptionInput(StoredFile.of(b"RIFF"), "audio/wav", "a.wav", format=wanted)
    mapping = Mapping("openai", "whisper-1", "whisper-1", formats=offered)
    target = Target(
        Provider("openai", "OpenAI", "openai"), mapping, Credential("sk-x"), "https://api.openai.com/v1", {}
    )
    call = CODEC.write(TranscriptionRequest("whisper-1", Requirements(), lambda: content), target)
    form = b"".join(bytes(piece) for piece in call.body.pieces()).decode()
    assert f'name="response_format"\r\n\r\n{requested}\r\n' in form
