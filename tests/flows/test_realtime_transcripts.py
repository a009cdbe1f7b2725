"""Transcripts of realtime sessions whose provider reports usage in another unit than the model's price, or none."""

import base64
from typing import Any

import pytest
from fakes.realtime import Conversation, FakeRealtime
from support.gateways import LocalGateway
from support.realtime_sessions import session, upstream_settings
from support.shared import Share, usage_of
from support.spending import until

SOUND = base64.b64encode(bytes(480_000)).decode()  # ten seconds
HEARD = "conversation.item.input_audio_transcription.completed"


@pytest.fixture
def fake(share: Share) -> FakeRealtime:
    return share.fake(FakeRealtime)


@pytest.fixture
def gateway(share: Share, fake: FakeRealtime) -> LocalGateway:
    return share.gateway(upstream_settings(fake.url))


def tokens(given: int, made: int) -> dict[str, Any]:
    return {"type": "tokens", "input_tokens": given, "output_tokens": made}


def seconds(length: int) -> dict[str, Any]:
    return {"type": "duration", "seconds": length}


@pytest.mark.parametrize(
    ("model", "reported", "least_nusd"),
    [
        ("whisper-1", tokens(5, 2), 1_000_000),
        ("whisper-1", tokens(-5, 0), 1_000_000),
        ("whisper-1", seconds(-1), 1_000_000),
        ("gpt-4o-transcribe", seconds(10), 600_000),
        ("gpt-4o-transcribe", tokens(0, 0), 600_000),
        ("gpt-4o-transcribe", tokens(-5, 0), 600_000),
    ],
)
def test_a_transcript_is_never_free_in_whatever_unit_its_usage_is(gateway, fake, model, reported, least_nusd) -> None:
    def play(talk: Conversation) -> None:
        heard = talk.hear("session.update")
        talk.send("session.updated", session=heard["session"])
        talk.hear("input_audio_buffer.commit")
        talk.send("input_audio_buffer.committed", item_id="item_1")
        talk.send(HEARD, item_id="item_1", content_index=0, transcript="Hi.", usage=reported)

    fake.plays = [play]
    with session(gateway) as connection:
        update: Any = {"type": "realtime", "audio": {"input": {"transcription": {"model": model}}}}
        connection.session.update(session=update)
        connection.input_audio_buffer.append(audio=SOUND)
        connection.input_audio_buffer.commit()
        while connection.recv().type != HEARD:
            pass
    [row] = usage_of(gateway)
    assert row.cost_nusd >= least_nusd


def test_live_words_of_telephone_sound_that_is_left_are_billed_by_its_length(gateway, fake) -> None:
    def play(talk: Conversation) -> None:
        heard = talk.hear("session.update")
        talk.send("session.updated", session=heard["session"])
        talk.hear("input_audio_buffer.append")
        talk.send(f"{HEARD.removesuffix('completed')}delta", item_id="item_1", content_index=0, delta="Hi ")

    fake.plays = [play]
    sound = {"format": {"type": "audio/pcmu"}, "transcription": {"model": "whisper-1"}, "turn_detection": None}
    with session(gateway) as connection:
        connection.session.update(session={"type": "realtime", "audio": {"input": sound}})
        connection.input_audio_buffer.append(audio=SOUND)  # 480,000 bytes: a minute of G.711
        while not connection.recv().type.endswith("delta"):
            pass
    assert until(lambda: usage_of(gateway))
    [row] = usage_of(gateway)
    assert row.cost_nusd >= 60 * 100_000
