"""Answers to transcriptions: what subtitles are made of has times, or the answer is the provider's fault."""

import pytest
from support.replies import MemoryReply, json_reply

from gateway.errors import UpstreamFailed
from gateway.providers.openai.transcriptions import OpenAITranscriptions
from gateway.surfaces.openai.subtitles import write_subtitles

CODEC = OpenAITranscriptions("/audio/transcriptions")


@pytest.mark.parametrize("seconds", [b'"zz"', b'{"a":1}', b"[]", b"true", b"1e999"])
def test_a_segment_without_a_time_is_the_providers_fault(seconds: bytes) -> None:
    body = b'{"text":"Hi","segments":[{"start":0,"end":%b,"text":"Hi"}]}' % seconds
    with pytest.raises(UpstreamFailed):
        CODEC.read(MemoryReply(body, headers={}), False)


def test_a_segment_without_an_end_is_shown_from_its_start() -> None:
    found = CODEC.read(json_reply({"text": "Hi", "segments": [{"start": 1.5, "end": None, "text": "Hi"}]}), False)
    assert "00:00:01.500 --> 00:00:00.000\nHi" in write_subtitles("vtt", found.segments)
