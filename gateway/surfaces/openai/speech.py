"""POST /v1/audio/speech."""

from base64 import b64encode
from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.json import Decoder

from gateway.billing.context import Outcome
from gateway.billing.unit_estimates import estimate
from gateway.catalogue.prices import cost_of
from gateway.engine.executor import StreamedAnswer
from gateway.errors import StreamTruncated
from gateway.money import format_usd
from gateway.neutral.events import Batch, Failed, Finished, MediaPiece
from gateway.neutral.request import Options, Requirements
from gateway.neutral.speech import FORMATS, SpeechInput, SpeechRequest, format_among, units_of, voice_uses
from gateway.surfaces.bodies.preference_checks import Routing, read_preferences
from gateway.surfaces.bodies.validation_errors import read_json
from gateway.surfaces.openai.chat_writer import KEEP_ALIVE, error_frame
from gateway.surfaces.openai.structured import TokensUsedAnswer, write_tokens
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.answer_structs import ModelApiAnswer, StreamFailure
from gateway.surfaces.web.facts import Facts, headers_of
from gateway.surfaces.web.http import About, Inbound, Operation, Outbound
from gateway.worker.services import Services

ID_PREFIX = "speech-"
COST = "x-llmgateway-cost"
ESTIMATED_COST = "x-llmgateway-estimated-cost"
Text = Annotated[str, Meta(min_length=1, max_length=100_000)]
Name = Annotated[str, Meta(min_length=1)]


class OwnVoice(Struct, gc=False):
    """A voice that the caller created at the provider."""

    id: Name


class SpeechBody(Struct, kw_only=True, gc=False):
    """Every field that has an effect; all others are accepted and dropped."""

    model: Name
    input: Text
    voice: str | OwnVoice | None = None
    response_format: Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] | None = None
    speed: Annotated[float, Meta(ge=0.25, le=4)] | None = None
    instructions: Annotated[str, Meta(max_length=100_000)] | None = None
    stream_format: Literal["audio", "sse"] | None = None
    routing: Routing = None


DECODER = Decoder(SpeechBody)


def speak(services: Services, inbound: Inbound) -> Outbound:
    """Generate speech from text: the audio file, or a stream of events with its chunks."""
    context = auth_module.admit(services, inbound, SpeechRequest.operation)
    body = read_json(services.settings.limits, DECODER, inbound.body)
    request = read_speech(body)
    stream = services.engine.executor.stream(context, request)
    facts = Facts(context, stream.outcome, ID_PREFIX + context.request_id)
    if body.stream_format == "sse":
        headers = headers_of(facts, services.clock, streamed=True)
        return http_responses_module.stream_reply(_frames(stream, facts), context.shown_id, headers)
    return _reply(services, stream, facts, body.response_format or "")


def read_speech(body: SpeechBody) -> SpeechRequest:
    """Return the neutral request."""
    own = isinstance(body.voice, OwnVoice)
    voice = body.voice.id if isinstance(body.voice, OwnVoice) else body.voice or ""
    content = SpeechInput(
        body.input, voice, body.response_format or "", body.speed or 1.0, body.instructions or "", own
    )
    size = len((content.text + content.instructions).encode("utf-8", "replace"))
    needs = Requirements(
        stream=True,
        max_tokens=0,
        prompt_bytes=size,
        messages=1,
        units=units_of(content),
        hosted_uses=voice_uses(content),
    )
    return SpeechRequest(body.model, needs, lambda: content, Options(**read_preferences(routing=body.routing)))


def _reply(services: Services, stream: StreamedAnswer, facts: Facts, format: str) -> Outbound:
    """Return the file. Its first piece waits for the second: if the file is complete by then, the headers have its
    length and cost. The last piece is sent only after the settlement."""
    batches = iter(stream)
    try:
        first, ended = _next_piece(batches)
        if ended:
            second, ended = (b"", True)
        else:
            second, ended = _next_piece(batches)
    except BaseException:
        stream.close()
        raise
    headers = headers_of(facts, services.clock, streamed=not ended)
    if not ended:
        headers.append(foreseen_cost(facts.outcome, facts.context.at_us))
    made = format_among(format, facts.serving.target.mapping.formats)
    named = [
        ("Content-Type", FORMATS[made]),
        *http_responses_module.PRIVATE,
        ("x-request-id", facts.context.shown_id),
        *headers,
    ]
    if ended:
        stream.close()
        return Outbound(200, named, first + second)
    return Outbound(200, named, _pieces(stream, batches, first, second))


def _next_piece(batches: Iterator[Batch]) -> tuple[bytes, bool]:
    """Return the next bytes, and whether they were the last. Raises the error that ended the response."""
    for batch in batches:
        piece = b"".join(event.data for event in batch if type(event) is MediaPiece)
        last = batch[-1]
        if type(last) is Failed:
            raise last.error
        if type(last) is Finished:
            return piece, True
        if piece:
            return piece, False
    raise StreamTruncated("The provider's answer ended before it was complete.")


def _pieces(stream: StreamedAnswer, batches: Iterator[Batch], first: bytes, second: bytes) -> Iterator[bytes]:
    pieces = _write_pieces(stream, batches, first, second)
    next(pieces)
    return pieces


def _write_pieces(stream: StreamedAnswer, batches: Iterator[Batch], first: bytes, second: bytes) -> Iterator[bytes]:
    """Write one piece behind the provider; a response that fails closes the connection, so that it cannot look
    complete."""
    try:
        yield b""  # taken now: from here on, closing this generator also closes the stream
        yield first
        held = second
        ended = False
        while not ended:
            piece, ended = _next_piece(batches)
            if held and piece:
                yield held
            held = piece or held
        yield held
    finally:
        stream.close()


def foreseen_cost(outcome: Outcome, at_us: int) -> tuple[str, str]:
    """Return the header of the expected cost: exact where the characters alone determine it, else by the estimated
    duration."""
    mapping = outcome.serving.target.mapping
    units = outcome.request.requirements.units
    likely = estimate(units, mapping, outcome.request.requirements.prompt_bytes)
    name = COST if likely.characters and not likely.output_audio else ESTIMATED_COST
    return name, format_usd(cost_of(likely, mapping, at_us).total)


class SpeechPieceAnswer(ModelApiAnswer, tag_field="type", tag="speech.audio.delta"):
    audio: str


class SpeechEndAnswer(ModelApiAnswer, tag_field="type", tag="speech.audio.done"):
    usage: TokensUsedAnswer


SpeechEvent = SpeechPieceAnswer | SpeechEndAnswer | StreamFailure


def _frames(stream: StreamedAnswer, facts: Facts) -> Iterator[bytes]:
    return http_responses_module.write_frames(stream, lambda batch: _write_events(batch, facts), error_frame)


def _write_events(batch: Batch, facts: Facts) -> bytes:
    sent = []
    for event in batch:
        if type(event) is MediaPiece:
            sent.append(http_responses_module.write_event(SpeechPieceAnswer(b64encode(event.data).decode())))
        elif type(event) is Failed:
            sent.append(error_frame(event.error))
        elif type(event) is Finished:
            usage = write_tokens(facts)
            usage.total_tokens = usage.input_tokens + usage.output_tokens
            sent.append(http_responses_module.write_event(SpeechEndAnswer(usage)))
    return b"".join(sent) or KEEP_ALIVE


ABOUT = About(
    "Generate speech from text",
    request=SpeechBody,
    answer={"type": "string", "format": "binary"},
    media="audio/*",
    events=SpeechEvent,
)

OPERATIONS = (Operation("POST", "/v1/audio/speech", speak, body="json", paid=True, about=ABOUT),)
