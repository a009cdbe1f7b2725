"""The billing of realtime sessions in which the provider or the caller does something unforeseen."""

import base64
import threading
import time
from typing import Any

import openai
import pytest
from fakes.realtime import USAGE, USAGE_NUSD, Conversation, FakeRealtime
from support.gateways import LocalGateway
from support.pdfs import packed
from support.realtime_sessions import MODEL, session, upstream_settings
from support.shared import CREDITS_NUSD, Share, usage_of
from support.spending import until

from gateway.metering.models import OVERRUN

SECOND = 48_000  # bytes of sound
HEARD = "conversation.item.input_audio_transcription.completed"
TOKENS = {"type": "tokens", "input_tokens": 100, "output_tokens": 20, "input_token_details": {"audio_tokens": 100}}
PDF_URL = "data:application/pdf;base64," + base64.b64encode(packed(1000, decoy=b"% /Type /Page \n")).decode()
TOKENS_NUSD = 100 * 6_000 + 20 * 10_000  # of gpt-4o-transcribe


@pytest.fixture
def fake(share: Share) -> FakeRealtime:
    return share.fake(FakeRealtime)


@pytest.fixture
def gateway(share: Share, fake: FakeRealtime) -> LocalGateway:
    return share.gateway(upstream_settings(fake.url))


def wait(connection: Any, kind: str) -> Any:
    """The first event of a type; an error fails."""
    while (event := connection.recv()).type != kind:
        assert event.type != "error", event
    return event


def costs(gateway: LocalGateway) -> list[tuple[str, str, int]]:
    """(model, finish, n$) of the usage rows of a gateway's organization."""
    return [(row.served, row.finish, row.cost_nusd) for row in usage_of(gateway)]


def overran(gateway: LocalGateway) -> list[bool]:
    """Return for each row whether it cost more than was reserved for it."""
    return [bool(row.flags & OVERRUN) for row in usage_of(gateway)]


def began(talk: Conversation, ident: str, **more: Any) -> None:
    talk.send("response.created", response={"id": ident, "status": "in_progress", "output": []} | more)


def wrote(talk: Conversation, ident: str, text: str = "Hello there.") -> None:
    about = {"response_id": ident, "item_id": "item", "output_index": 0, "content_index": 0}
    talk.send("response.output_text.delta", **about, delta=text)


def ended(talk: Conversation, ident: str, usage: Any = USAGE, **more: Any) -> None:
    talk.send("response.done", response={"id": ident, "status": "completed", "output": [], "usage": usage} | more)


def send_transcript(talk: Conversation, item: str, usage: Any, text: str = "Hi.") -> None:
    talk.send(HEARD, item_id=item, content_index=0, transcript=text, **({"usage": usage} if usage else {}))


def sound(seconds: float) -> str:
    return base64.b64encode(bytes(round(seconds * SECOND))).decode()


def test_an_end_reported_twice_is_billed_once(gateway, fake) -> None:
    def play(talk: Conversation) -> None:
        talk.hear("response.create")
        for _ in range(2):
            began(talk, "resp_1")
        for _ in range(2):
            ended(talk, "resp_1")
        for _ in range(2):
            send_transcript(talk, "item_1", TOKENS)

    fake.plays = [play]
    with session(gateway) as connection:
        set_transcriber(connection, "gpt-4o-transcribe")
        connection.response.create()
        for _ in range(2):
            wait(connection, "response.done")
        for _ in range(2):
            wait(connection, HEARD)
    assert costs(gateway) == [(MODEL, "stop", USAGE_NUSD), ("gpt-4o-transcribe", "stop", TOKENS_NUSD)]


def test_an_end_with_half_a_character_in_it_is_billed_all_the_same(gateway, fake) -> None:
    def play(talk: Conversation) -> None:
        talk.hear("response.create")
        began(talk, "resp_1")
        item = {
            "id": "item",
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "\ud83d"}],
        }
        ended(talk, "resp_1", output=[item], status="incomplete")

    fake.plays = [play]
    with session(gateway) as connection:
        connection.response.create()
        wait(connection, "response.done")
        assert costs(gateway) == [(MODEL, "length", USAGE_NUSD)]


def test_zeros_for_an_answer_are_estimated_by_what_came(gateway, fake) -> None:
    zeros = {"total_tokens": 0, "input_tokens": 0, "output_tokens": 0}

    def play(talk: Conversation) -> None:
        talk.hear("response.create")
        began(talk, "resp_1")
        wrote(talk, "resp_1", "x" * 398)
        ended(talk, "resp_1", zeros)
        talk.hear("response.create")
        began(talk, "resp_2")
        ended(talk, "resp_2", zeros, status="cancelled")

    fake.plays = [play]
    with session(gateway) as connection:
        for _ in range(2):
            connection.response.create()
            wait(connection, "response.done")
    first, second = usage_of(gateway)
    assert (first.basis, first.output) == (2, 100)
    assert (second.finish, second.cost_nusd) == ("cancelled", 0)  # before it made anything


def test_the_output_of_several_responses_is_estimated_for_each(gateway, fake) -> None:
    def play(talk: Conversation) -> None:
        for number in (1, 2):
            talk.hear("response.create")
            began(talk, f"resp_{number}")
        wrote(talk, "resp_2", "x" * 398)
        for number in (1, 2):
            ended(talk, f"resp_{number}", None)

    fake.plays = [play]
    with session(gateway) as connection:
        for _ in range(2):
            connection.response.create(response={"conversation": "none"})
        for _ in range(2):
            wait(connection, "response.done")
    assert [row.output for row in usage_of(gateway)] == [0, 100]


def test_a_large_image_is_estimated_as_an_image(gateway, fake) -> None:
    def play(talk: Conversation) -> None:
        talk.hear("response.create")
        began(talk, "resp_1")
        wrote(talk, "resp_1")
        ended(talk, "resp_1", None)

    fake.plays = [play]
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgoA" + "A" * 2_000_000}
    with session(gateway) as connection:
        connection.conversation.item.create(item={"type": "message", "role": "user", "content": [image]})
        connection.response.create()
        wait(connection, "response.done")
    (row,) = usage_of(gateway)
    assert 500 < row.input < 5_000


UNSEEN = {
    "file at an address": {"type": "input_file", "file_url": "https://example.com/book.pdf"},
    "file in the event": {"type": "input_file", "filename": "a.txt", "file_data": PDF_URL},
    "file sent as an image": {"type": "input_image", "image_url": PDF_URL.replace("application/pdf", "image/png")},
    "image at an address": {"type": "input_image", "image_url": "https://example.com/a.png"},
}


def test_a_file_of_the_platforms_account_is_refused(gateway, fake) -> None:
    part = {"type": "input_file", "file_id": "file-1"}
    with session(gateway) as connection:
        connection.conversation.item.create(item={"type": "message", "role": "user", "content": [part]})
        while (event := connection.recv()).type != "error":
            continue
        assert event.error.code == "unpriced_use" and "routing.provider_objects" in event.error.message
    assert fake.last.named("conversation.item.create") == []


@pytest.mark.parametrize("part", UNSEEN.values(), ids=UNSEEN)
def test_content_that_only_the_provider_measures_is_reserved_as_the_whole_context(gateway, fake, part) -> None:
    """A response reads at most its model's context (32,000 tokens, at 32 USD a million for sound)."""

    def play(talk: Conversation) -> None:
        answer(talk, 1, sound_usage(31_900, 10))

    fake.plays = [play]
    item = {"type": "message", "role": "user", "content": [part]}
    with session(gateway) as connection:
        connection.conversation.item.create(item=item)
        connection.response.create(response={"max_output_tokens": 100})
        wait(connection, "response.done")
    assert overran(gateway) == [False]
    spent_nusd = sum(row.cost_nusd for row in usage_of(gateway))
    left_nusd = 900_000_000  # less than one context
    ledger = gateway.services.billing.ledger
    unused_nusd = left_nusd - CREDITS_NUSD + spent_nusd
    ledger.post(gateway.organization_id, "adjustment", unused_nusd, f"test:{gateway.organization_id}:left")
    with session(gateway) as connection:
        connection.conversation.item.create(item=item)
        connection.response.create(response={"max_output_tokens": 100})
        while (event := connection.recv()).type != "error":
            continue
        assert event.error.code == "insufficient_credits"
    assert fake.last.named("response.create") == [] and len(usage_of(gateway)) == 1


def test_an_answer_that_is_longer_than_was_foreseen_is_reserved_as_it_comes(gateway, fake) -> None:
    def play(talk: Conversation) -> None:
        for number, length in enumerate((1, 20)):
            talk.hear("response.create")
            began(talk, f"resp_{number}")
            for _ in range(length):
                about = {"response_id": f"resp_{number}", "item_id": "item", "output_index": 0, "content_index": 0}
                talk.send("response.output_audio.delta", **about, delta=sound(20))
            ended(talk, f"resp_{number}", sound_usage(10, 400 * length))

    fake.plays = [play]
    with session(gateway, model="gpt-realtime-2") as connection:
        for _ in range(2):
            connection.response.create()
            wait(connection, "response.done")
    assert overran(gateway) == [False] * 2


def test_a_response_requested_at_the_last_moment_is_awaited_and_billed(gateway, fake) -> None:
    left = threading.Event()

    def play(talk: Conversation) -> None:
        talk.hear("response.create")
        left.wait(60)
        began(talk, "resp_1")
        talk.hear("response.cancel")
        ended(talk, "resp_1", status="cancelled")

    fake.plays = [play]
    with session(gateway) as connection:
        connection.response.create()
        until(lambda: fake.last.named("response.create"))
    left.set()
    assert until(lambda: costs(gateway) == [(MODEL, "cancelled", USAGE_NUSD)])


# Transcripts.


def set_transcriber(connection: Any, model: str | None, **more: Any) -> None:
    """The session's model that transcribes, without waiting for the provider's word."""
    transcription = None if model is None else {"model": model}
    connection.session.update(
        session={"type": "realtime", "audio": {"input": {"transcription": transcription, **more}}}
    )


def updated(talk: Conversation) -> None:
    """Take the caller's next update and say so."""
    event = talk.hear("session.update")
    talk.send("session.updated", session=event["session"])


def refuse(talk: Conversation) -> None:
    """Refuse the caller's next update."""
    event = talk.hear("session.update")
    error = {"type": "invalid_request_error", "code": "invalid_value", "message": "no", "event_id": event["event_id"]}
    talk.send("error", error=error)


def test_an_update_that_the_provider_refuses_changes_no_price_of_a_transcript(gateway, fake) -> None:
    def play(talk: Conversation) -> None:
        updated(talk)
        for number, _ in enumerate((None, "whisper-1")):
            refuse(talk)
            talk.hear("input_audio_buffer.commit")
            talk.send("input_audio_buffer.committed", item_id=f"item_{number}")
            send_transcript(talk, f"item_{number}", TOKENS)

    fake.plays = [play]
    with session(gateway) as connection:
        set_transcriber(connection, "gpt-4o-transcribe")
        wait(connection, "session.updated")
        for model in (None, "whisper-1"):
            set_transcriber(connection, model, format={"type": "nonsense"})
            assert connection.recv().error.code == "invalid_value"
            connection.input_audio_buffer.append(audio=sound(0.1))
            connection.input_audio_buffer.commit()
            wait(connection, HEARD)
    assert costs(gateway) == [("gpt-4o-transcribe", "stop", TOKENS_NUSD)] * 2


def test_a_transcript_has_the_price_of_the_model_that_was_set_when_it_was_said(gateway, fake) -> None:
    def play(talk: Conversation) -> None:
        updated(talk)
        talk.hear("input_audio_buffer.append")
        updated(talk)
        talk.hear("input_audio_buffer.commit")
        talk.send("input_audio_buffer.committed", item_id="item_1")
        send_transcript(talk, "item_1", TOKENS)

    fake.plays = [play]
    with session(gateway) as connection:
        set_transcriber(connection, "whisper-1")
        wait(connection, "session.updated")
        connection.input_audio_buffer.append(audio=sound(0.1))
        set_transcriber(connection, "gpt-4o-transcribe")
        wait(connection, "session.updated")
        connection.input_audio_buffer.commit()
        wait(connection, HEARD)
    assert costs(gateway) == [("gpt-4o-transcribe", "stop", TOKENS_NUSD)]


def test_a_transcript_without_usage_is_estimated_by_its_sound(gateway, fake) -> None:
    def play(talk: Conversation) -> None:
        updated(talk)
        talk.hear("input_audio_buffer.commit")
        talk.send("input_audio_buffer.committed", item_id="item_1")
        send_transcript(talk, "item_1", None)

    fake.plays = [play]
    with session(gateway) as connection:
        set_transcriber(connection, "whisper-1")
        connection.input_audio_buffer.append(audio=sound(10))
        connection.input_audio_buffer.commit()
        wait(connection, HEARD)
    assert costs(gateway) == [("whisper-1", "stop", 1_000_000)]


def test_a_transcript_that_fails_costs_nothing(gateway, fake) -> None:
    def play(talk: Conversation) -> None:
        updated(talk)
        talk.hear("input_audio_buffer.commit")
        talk.send("input_audio_buffer.committed", item_id="item_1")
        talk.send(HEARD.replace("completed", "failed"), item_id="item_1", content_index=0, error={"message": "no"})

    fake.plays = [play]
    with session(gateway) as connection:
        set_transcriber(connection, "whisper-1")
        connection.input_audio_buffer.append(audio=sound(1))
        connection.input_audio_buffer.commit()
        wait(connection, HEARD.replace("completed", "failed"))
    assert costs(gateway) == []


def transcript_left_behind(sound_s: float, tells: bool) -> Any:
    """A provider that takes sound and is left before its transcript is complete."""

    def play(talk: Conversation) -> None:
        updated(talk)
        talk.hear("input_audio_buffer.commit")
        talk.send("input_audio_buffer.committed", item_id="item_1")
        if tells:
            send_transcript(talk, "item_1", {"type": "duration", "seconds": sound_s})

    return play


@pytest.mark.parametrize(("model", "expected_nusd"), [("whisper-1", 1_000_000), ("gpt-4o-transcribe", 1_000_000)])
def test_a_caller_who_leaves_before_a_transcript_is_complete_pays_for_its_sound(
    gateway, fake, model, expected_nusd
) -> None:
    """Ten seconds of sound: $0.0001 a second at whisper-1; 100 tokens in and 40 out at gpt-4o-transcribe."""
    fake.plays = [transcript_left_behind(10, tells=False)]
    with session(gateway) as connection:
        set_transcriber(connection, model)
        wait(connection, "session.updated")
        connection.input_audio_buffer.append(audio=sound(10))
        connection.input_audio_buffer.commit()
        wait(connection, "input_audio_buffer.committed")
    assert until(lambda: bool(costs(gateway))) and costs(gateway) == [(model, "client_disconnect", expected_nusd)]


def test_a_caller_who_leaves_after_live_words_pays_for_the_sound(gateway, fake) -> None:
    """Words of a transcript came before its sound was committed, and nothing was billed."""

    def play(talk: Conversation) -> None:
        updated(talk)
        talk.hear("input_audio_buffer.append")
        talk.send(HEARD.replace("completed", "delta"), item_id="item_1", content_index=0, delta="Hello")

    fake.plays = [play]
    with session(gateway) as connection:
        set_transcriber(connection, "whisper-1")
        wait(connection, "session.updated")
        connection.input_audio_buffer.append(audio=sound(10))
        wait(connection, HEARD.replace("completed", "delta"))
    assert until(lambda: bool(costs(gateway)))
    assert costs(gateway) == [("whisper-1", "client_disconnect", 1_000_000)]


def test_a_caller_who_leaves_right_after_the_commit_pays_for_the_transcript(gateway, fake) -> None:
    fake.plays = [transcript_left_behind(10, tells=True)]
    with session(gateway) as connection:
        set_transcriber(connection, "whisper-1")
        wait(connection, "session.updated")
        connection.input_audio_buffer.append(audio=sound(10))
        connection.input_audio_buffer.commit()
        connection._connection.socket.close()
    assert until(lambda: bool(costs(gateway))) and costs(gateway) == [("whisper-1", "stop", 1_000_000)]


# Reservations.


def sound_usage(input_tokens: int, output_tokens: int) -> dict[str, Any]:
    """The usage of a response that read and made so many tokens of sound."""
    details = {
        "input_token_details": {"audio_tokens": input_tokens},
        "output_token_details": {"audio_tokens": output_tokens},
    }
    return {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
    } | details


def answer(talk: Conversation, number: int, usage: Any) -> None:
    talk.hear("response.create")
    began(talk, f"resp_{number}")
    ended(talk, f"resp_{number}", usage)


def test_text_after_sound_is_reserved_when_a_response_is_requested(gateway, fake) -> None:
    fake.listens, fake.plays = True, [lambda talk: answer(talk, 1, sound_usage(31_000, 10))]
    text = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x" * 60_000}]}
    with session(gateway) as connection:
        connection.input_audio_buffer.append(audio=sound(0.1))
        connection.conversation.item.create(item=text)
        connection.response.create()
        wait(connection, "response.done")
    assert overran(gateway) == [False]


def test_a_raised_output_limit_raises_the_reservation(gateway, fake) -> None:
    def play(talk: Conversation) -> None:
        updated(talk)
        answer(talk, 1, sound_usage(10, 10))
        updated(talk)
        answer(talk, 2, sound_usage(10, 4_000))
        answer(talk, 3, sound_usage(10, 4_000))

    fake.plays = [play]
    with session(gateway) as connection:
        for limit, responses in ((10, 1), ("inf", 2)):
            connection.session.update(session={"type": "realtime", "max_output_tokens": limit})
            wait(connection, "session.updated")
            for _ in range(responses):
                connection.response.create()
                wait(connection, "response.done")
    assert overran(gateway) == [False] * 3


def test_a_limit_of_a_response_goes_before_that_of_the_session(gateway, fake) -> None:
    def play(talk: Conversation) -> None:
        updated(talk)
        for number in (1, 2):
            answer(talk, number, sound_usage(10, 3_000))

    fake.plays = [play]
    with session(gateway) as connection:
        connection.session.update(session={"type": "realtime", "max_output_tokens": 10})
        wait(connection, "session.updated")
        for limit in ("inf", 3_000):
            connection.response.create(response={"max_output_tokens": limit})
            wait(connection, "response.done")
    assert overran(gateway) == [False] * 2


def test_a_limit_that_the_provider_refuses_lowers_nothing_that_is_reserved(gateway, fake) -> None:
    def play(talk: Conversation) -> None:
        refuse(talk)
        answer(talk, 1, sound_usage(10, 4_000))

    fake.plays = [play]
    with session(gateway) as connection:
        connection.session.update(session={"type": "realtime", "max_output_tokens": 1, "speed": 99})
        assert connection.recv().error.code == "invalid_value"
        connection.response.create()
        wait(connection, "response.done")
    assert overran(gateway) == [False]


def test_the_instructions_of_a_client_secret_are_reserved(gateway, fake) -> None:
    def play(talk: Conversation) -> None:
        updated(talk)
        answer(talk, 1, sound_usage(12_000, 10))

    fake.plays = [play]
    client = openai.OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
    session = {"type": "realtime", "model": MODEL, "instructions": "x" * 60_000}
    secret = client.realtime.client_secrets.create(session=session)
    page = openai.OpenAI(base_url=gateway.url, api_key=secret.value, max_retries=0)
    with page.realtime.connect(model=MODEL) as connection:
        connection.response.create()
        wait(connection, "response.done")
    assert overran(gateway) == [False]


def test_a_long_turn_of_sound_is_reserved_for_its_transcript(gateway, fake) -> None:
    def play(talk: Conversation) -> None:
        updated(talk)
        talk.hear("input_audio_buffer.commit")
        talk.send("input_audio_buffer.committed", item_id="item_1")
        send_transcript(talk, "item_1", {"type": "duration", "seconds": 300})

    fake.plays = [play]
    with session(gateway) as connection:
        set_transcriber(connection, "whisper-1")
        for _ in range(3):
            connection.input_audio_buffer.append(audio=sound(100))
        connection.input_audio_buffer.commit()
        wait(connection, HEARD)
    assert overran(gateway) == [False]


def test_the_time_of_a_response_counts_from_its_beginning(gateway, fake) -> None:
    said = threading.Event()

    def play(talk: Conversation) -> None:
        talk.hear("input_audio_buffer.append")
        said.wait(60)
        began(talk, "resp_1")
        ended(talk, "resp_1")

    fake.listens, fake.plays = True, [play]
    with session(gateway) as connection:
        connection.input_audio_buffer.append(audio=sound(0.1))
        until(lambda: fake.last.named("input_audio_buffer.append"))
        time.sleep(0.2)
        said.set()
        wait(connection, "response.done")
    (row,) = usage_of(gateway)
    assert row.duration_ms < 150


def test_an_answer_that_outgrows_what_its_session_may_cost_is_ended_and_billed(share: Share, fake) -> None:
    cents = {"GATEWAY_REALTIME_SESSION_USD": "0.1"}
    gateway = share.gateway({"LLM_OPENAI_API_KEY": "sk-upstream", "LLM_OPENAI_BASE_URL": fake.url} | cents)

    def play(talk: Conversation) -> None:
        talk.hear("response.create")
        began(talk, "resp_1")
        for _ in range(5):  # regardless of the requested maximum
            about = {"response_id": "resp_1", "item_id": "item", "output_index": 0, "content_index": 0}
            talk.send("response.output_audio.delta", **about, delta=sound(20))
        talk.hear("response.cancel")
        ended(talk, "resp_1", sound_usage(10, 2_000), status="cancelled")

    fake.plays = [play]
    with session(gateway) as connection:
        connection.response.create(response={"max_output_tokens": 100})
        while (event := connection.recv()).type != "error":
            continue
        assert event.error.code == "session_spending_limit_reached"
    assert until(lambda: [row[1] for row in costs(gateway)] == ["cancelled"])
    (row,) = usage_of(gateway)
    assert row.cost_nusd == 10 * 32_000 + 2_000 * 64_000


def test_a_long_talk_reserves_what_the_provider_counted_and_not_what_its_sound_might_have_been(
    share: Share, fake
) -> None:
    cents = {"GATEWAY_REALTIME_SESSION_USD": "0.7"}
    gateway = share.gateway({"LLM_OPENAI_API_KEY": "sk-upstream", "LLM_OPENAI_BASE_URL": fake.url} | cents)
    fake.plays = [lambda talk: [answer(talk, number, sound_usage(1_000 * number, 10)) for number in (1, 2, 3)]]
    with session(gateway) as connection:
        for _ in range(3):
            connection.input_audio_buffer.append(audio=sound(100))
            connection.response.create()
            wait(connection, "response.done")
    assert overran(gateway) == [False] * 3
