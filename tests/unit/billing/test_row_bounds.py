"""Every row costs at least what was certainly consumed and at most what was reserved; reported usage is billed exactly.

Over random requests of chat (with images, documents and sound), speech, transcription and realtime, kinds of reported
usage, and ways in which an answer ends. The least is computed here from the rates that docs/limits.md documents.
`test_reported_usage.py` has the operations that answer in one piece, `flows/test_left_answers.py` real processes.
"""

import dataclasses
import math
from base64 import b64encode
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from support.billing import DOLLAR, admission_of, attempt_at, target
from support.pdfs import packed

from gateway.billing.bounds import Bounds
from gateway.billing.context import Attempt
from gateway.catalogue.entries import Prices, TokenRates
from gateway.catalogue.prices import cost_of
from gateway.engine.realtime.session_turns import ConversationLength
from gateway.engine.streaming import observe
from gateway.errors import Cancelled, StreamTruncated
from gateway.media.sounds import length_of
from gateway.media.token_counting import counted
from gateway.money import MILLION
from gateway.neutral import realtime, speech, transcriptions, videos
from gateway.neutral.chat import ChatRequest, Conversation
from gateway.neutral.events import MediaPiece, TextDelta
from gateway.neutral.parts import Audio, File, Image, Media, Message, Part, Text
from gateway.neutral.request import Request, Requirements
from gateway.neutral.usage import Usage
from gateway.providers.protocol import Target
from gateway.providers.sandbox import speech as speech_module
from gateway.providers.sandbox.images import png
from gateway.runtime.large_files import StoredFile

AT_US = 1_750_000_000_000_000
INPUT_NUSD = 1_000  # per token
OUTPUT_NUSD = 2_000
TOKENS = TokenRates(prompt=INPUT_NUSD * MILLION, completion=OUTPUT_NUSD * MILLION)
CHARACTERS = TokenRates(character=INPUT_NUSD * MILLION)
HOURS = TokenRates(input_audio_hour=3_600 * 10**6 * MILLION)  # 10⁶ n$ for a second
SOUNDS = {
    (kind, seconds): speech_module.make(kind, seconds)
    for kind in ("wav", "flac", "mp3", "opus", "aac")
    for seconds in (0.5, 3.0)
}
PDFS = {pages: packed(pages) for pages in (1, 12)}
REPORTS = ("complete", "partial", "zero", "none")
ENDS = ("finished", "left", "drained", "cut")


class Case(NamedTuple):
    """A request with the price list of its target.

    `min_nusd` returns what is certainly consumed once an answer has begun, from the attempt; `deliver` gives the
    attempt a share (0 to 1) of the answer.
    """

    request: Request
    rates: TokenRates
    min_nusd: Callable[[Attempt], int]
    deliver: Callable[[Attempt, float], object]
    complete: Usage
    partial: Usage
    context_length: int = 100_000


def place(case: Case) -> Target:
    where = target()
    mapping = dataclasses.replace(
        where.mapping, prices=(Prices(case.rates),), context_length=case.context_length, max_output=1_000
    )
    return dataclasses.replace(where, mapping=mapping)


def encoded(data: bytes, kind: str = "") -> Media:
    return Media(kind, data=b64encode(data).decode())


# Parts with the fewest tokens that docs/limits.md counts for them.
PARTS = st.sampled_from(
    [
        (Image(encoded(png(2, 2, ""), "image/png")), 765),
        (Image(encoded(png(2, 2, ""), "image/png"), "low"), 85),
        (Image(Media(url="https://x.example/a.png")), 765),
        (File(Media(file_id="file-1")), 765),
        *((File(encoded(PDFS[pages], "application/pdf"), "a.pdf"), 765 * pages) for pages in PDFS),
        *((Audio(encoded(SOUNDS[key], "audio/wav"), key[0]), math.floor(10 * key[1])) for key in SOUNDS),
    ]
)


@st.composite
def chats(draw: st.DrawFn) -> Case:
    text = "x" * draw(st.integers(1, 20_000))
    media: list[tuple[Part, int]] = draw(st.lists(PARTS, max_size=4))
    parts = (Text(text), *(part for part, _ in media))
    output_tokens_ = draw(st.integers(1, 200))
    needs = Requirements(
        stream=True,
        prompt_bytes=len(text),
        messages=1,
        media=len(media),
        max_tokens=draw(st.sampled_from([output_tokens_, 500])),
    )
    request = counted(ChatRequest("m", needs, lambda: Conversation((Message("user", parts),))))
    read = -(-len(text) // 4) + sum(minimum for _, minimum in media)

    def deliver(attempt: Attempt, share: float) -> None:
        attempt.output_length = round(output_tokens_ * 4 * share)

    def min_nusd(attempt: Attempt) -> int:
        return read * INPUT_NUSD + -(-attempt.output_length // 4) * OUTPUT_NUSD

    full = Usage(input=read + 7, output=output_tokens_)
    return Case(request, TOKENS, min_nusd, deliver, full, structs.replace(full, output=0))


@st.composite
def speeches(draw: st.DrawFn) -> Case:
    content = speech.SpeechInput("x" * draw(st.integers(1, 400)), speed=draw(st.sampled_from([0.5, 1.0, 4.0])))
    kind, seconds = draw(st.sampled_from(list(SOUNDS)))
    sound = SOUNDS[kind, seconds]
    rates = draw(st.sampled_from([TOKENS, CHARACTERS]))
    needs = Requirements(
        stream=True, max_tokens=0, prompt_bytes=len(content.text), messages=1, units=speech.units_of(content)
    )

    def deliver(attempt: Attempt, share: float) -> None:
        end = round(len(sound) * share)
        for at in range(0, end, 700):
            observe(attempt, [MediaPiece(sound[at : min(end, at + 700)])], [])

    def min_nusd(attempt: Attempt) -> int:
        if rates is CHARACTERS:
            return len(content.text) * INPUT_NUSD
        heard_ms = attempt.sound.milliseconds if attempt.sound else 0
        return heard_ms * 20 // 1000 * OUTPUT_NUSD

    full = Usage(input=-(-len(content.text) // 4), output_audio=math.ceil(seconds * 20), characters=len(content.text))
    partial = Usage(input=full.input)
    return Case(speech.SpeechRequest("m", needs, lambda: content), rates, min_nusd, deliver, full, partial)


@st.composite
def transcripts(draw: st.DrawFn) -> Case:
    kind, seconds = draw(st.sampled_from(list(SOUNDS)))
    stored = StoredFile.of(SOUNDS[kind, seconds])
    content = transcriptions.TranscriptionInput(stored, f"audio/{kind}", "a", prompt="y" * draw(st.integers(0, 200)))
    rates = draw(st.sampled_from([TOKENS, HOURS]))
    units = transcriptions.units_of(content, *length_of(stored))
    needs = Requirements(stream=True, max_tokens=0, prompt_bytes=len(content.prompt), messages=1, units=units)
    text = "z" * draw(st.integers(0, math.floor(seconds * 16)))

    def deliver(attempt: Attempt, share: float) -> None:
        observe(attempt, [TextDelta(text[: round(len(text) * share)])], [])

    def min_nusd(attempt: Attempt) -> int:
        if rates is HOURS:
            return math.floor(seconds * 10**6)
        return math.floor(seconds * 10) * INPUT_NUSD

    output_count = -(-len(text) // 4)
    full = Usage(input_audio=math.ceil(seconds * 10), output=output_count, audio_ms=round(seconds * 1000))
    partial = Usage(audio_ms=full.audio_ms) if rates is HOURS else structs.replace(full, output=0)
    request = transcriptions.TranscriptionRequest("m", needs, lambda: content)
    return Case(request, rates, min_nusd, deliver, full, partial)


@st.composite
def turns(draw: st.DrawFn) -> Case:
    """A response of a realtime session, with the estimate that the session gives."""
    conversation = ConversationLength(100_000)
    said = draw(st.lists(st.tuples(st.integers(4, 4_000), st.integers(0, 480_000)), min_size=1, max_size=5))
    for text_bytes, sound_bytes in said:
        conversation.add(realtime.ClientEvent("", text_bytes=text_bytes, sound_bytes=sound_bytes))
    read = sum(-(-text // 4) + sound // 4_800 for text, sound in said)
    text, sound = draw(st.integers(0, 800)), draw(st.integers(0, 240_000))
    output_count = conversation.output_tokens(text, sound) + 2
    request = realtime.request_of("m", realtime.RealtimeInput(), conversation.most_tokens, output_count)

    def deliver(attempt: Attempt, share: float) -> None:
        attempt.usage = conversation.estimate(round(text * share), round(sound * share))

    def min_nusd(attempt: Attempt) -> int:
        return read * INPUT_NUSD

    full = Usage(input=read, output=output_count)
    return Case(request, TOKENS, min_nusd, deliver, full, conversation.estimate(0, 0))


@pytest.fixture
def process(start_billing: Callable[..., Any], account: Any) -> Any:
    started = start_billing()
    started.ledger.grant(account.organization, 1_000_000 * DOLLAR, "start")
    return started


def reported_by(case: Case, kind: str) -> Usage | None:
    return {"complete": case.complete, "partial": case.partial, "zero": Usage(), "none": None}[kind]


@pytest.mark.slow
@settings(
    max_examples=10 * settings().max_examples,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    case=st.one_of(chats(), speeches(), transcripts(), turns()),
    report=st.sampled_from(REPORTS),
    end=st.sampled_from(ENDS),
    share=st.sampled_from([0.0, 0.2, 0.7, 1.0]),
    streamed=st.booleans(),
)
def test_a_row_is_within_its_bounds(
    process: Any, account: Any, case: Case, report: str, end: str, share: float, streamed: bool
) -> None:
    where = place(case)
    bound = Bounds((where.mapping,)).compute(case.request, 1_000, AT_US)
    context = account.context()
    context.request = case.request
    settlement = process.settlements.admit(admission_of(context, bound))
    settlement.begin(0, where)
    attempt = attempt_at(where, first_at=0.1 if streamed else 0.0)
    if end in ("finished", "drained"):
        share = 1.0
    elif not streamed:
        share = 0.0  # an answer in one piece is complete or was not delivered
    case.deliver(attempt, share)
    if attempt.output_length > settlement.checked_length:
        settlement.grow(attempt)
    estimated = attempt.usage  # of a session
    reserved = settlement._reservation.amount_nusd
    reported = reported_by(case, report)
    if report in ("complete", "partial") or estimated is None:
        attempt.usage = reported
    if end == "finished":
        attempt.finish = "stop"
        settlement.settle(attempt)
    else:
        attempt.finish, attempt.error = "client_disconnect", Cancelled("The caller left.")
        if end == "cut":
            attempt.finish, attempt.error = "error", StreamTruncated("The answer was cut.")
        if end == "drained" and reported is not None and report == "complete":
            attempt.usage = structs.replace(reported, basis="drained")
        settlement.abandon(attempt)
    settlement.close()
    cost_nusd = attempt.charge.total
    if report == "complete" and end in ("finished", "drained"):
        assert cost_nusd == cost_of(case.complete, where.mapping, AT_US).total
        assert attempt.usage.basis != "estimated"
        return
    reported_nusd = cost_of(reported, where.mapping, AT_US).total if reported else 0
    assert cost_nusd <= max(reserved, reported_nusd) and not (attempt.overrun and cost_nusd <= reserved)
    if streamed or end != "cut":  # a call that fails before any content is free
        assert cost_nusd >= min(case.min_nusd(attempt), reserved), attempt.usage


@given(
    ordered_ms=st.integers(1_000, 60_000),
    ordered_tokens=st.sampled_from([0, 50_000]),
    reported=st.tuples(*[st.sampled_from([0, 1, 900, 10**12, -5, None, "many", float("inf")])] * 2),
)
def test_a_video_costs_what_was_ordered_unless_its_provider_reports_less(
    ordered_ms: int, ordered_tokens: int, reported: tuple[Any, Any]
) -> None:
    rates = TokenRates(completion=OUTPUT_NUSD * MILLION, per_second={"default": 10**9 * MILLION})
    where = dataclasses.replace(target().mapping, prices=(Prices(rates),))
    order = Usage(video_ms=ordered_ms, output=ordered_tokens)
    usage = videos.finished_usage(order, videos.VideoStatus("done", video_ms=reported[0], tokens=reported[1]))
    for count, told, maximum in (
        (usage.video_ms, reported[0], ordered_ms),
        (usage.output, reported[1], ordered_tokens),
    ):
        assert count == (min(told, maximum) if type(told) is int and told > 0 else maximum)
    assert 0 < cost_of(usage, where, AT_US).total <= cost_of(order, where, AT_US).total
