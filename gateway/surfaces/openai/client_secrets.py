"""POST /v1/realtime/client_secrets."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.json import Decoder

from gateway.billing.context import RequestContext
from gateway.errors import Forbidden, GatewayError, InvalidRequest, UnknownModel
from gateway.neutral.realtime import REALTIME, TRANSCRIPTION, SessionLock
from gateway.surfaces.bodies.validation_errors import read_json
from gateway.surfaces.openai.realtime_events import names_of, own_transcriber
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.http import About, Inbound, Operation, Outbound
from gateway.worker.services import Services

AUTO = "auto"  # the model of a session that names none
MAX_TOKENS = 16_384
CHARACTERS_PER_TOKEN = 4


class SecretExpiry(Struct):
    """The expiry of a secret, in seconds after its creation."""

    anchor: Literal["created_at"] = "created_at"
    seconds: int | None = None


class Transcriber(Struct):
    """The transcription model."""

    model: str = ""


class SoundIn(Struct):
    """Audio input of a session."""

    transcription: Transcriber | UnsetType | None = UNSET


class SoundOut(Struct):
    """Audio output of a session."""

    voice: str | None = None


class SecretSound(Struct):
    """Audio input and output of a session."""

    input: SoundIn | None = None
    output: SoundOut | None = None


class SecretSession(Struct):
    """The session settings that a secret fixes."""

    type: Literal["realtime", "transcription"]
    model: str | None = None
    instructions: str | None = None
    audio: SecretSound | None = None


class SecretBody(Struct):
    """The body of a request for a client secret."""

    session: SecretSession
    expires_after: SecretExpiry | None = None


DECODER = Decoder(SecretBody)


class FixedSession(TypedDict):
    """The settings that a secret fixes, as far as they are shown."""

    type: Literal["realtime", "transcription"]
    model: NotRequired[str]
    audio: NotRequired[dict[str, Any]]


class ClientSecret(TypedDict):
    """A secret for browsers and apps."""

    value: Annotated[str, Meta(description="the secret, which begins with ek_")]
    expires_at: Annotated[int, Meta(description="Unix seconds")]
    session: FixedSession


def make_secret(services: Services, inbound: Inbound) -> Outbound:
    """Create a client secret, which fixes settings of its sessions."""
    services.engine.realtime.check_on()
    context = auth_module.admit(services, inbound, "realtime")
    inbound.payload = context.payload = None
    try:
        body = read_json(services.settings.limits, DECODER, inbound.body)
    except InvalidRequest as error:
        if error.code == InvalidRequest.code:
            error.code = "invalid_request"
        raise
    lock = _lock(services, context, body.session)
    seconds = body.expires_after.seconds if body.expires_after is not None else None
    value, ends_at = services.accounts.realtime_secrets.make(context.caller, lock, seconds)
    answer: ClientSecret = {"value": value, "expires_at": ends_at, "session": _shown(lock)}
    return http_responses_module.json_reply(answer, context.shown_id)


def _lock(services: Services, context: RequestContext, session: SecretSession) -> SessionLock:
    transcriber = session.audio.input.transcription if session.audio and session.audio.input else UNSET
    if session.type == TRANSCRIPTION:
        if not isinstance(transcriber, Transcriber) or not transcriber.model:
            raise _invalid("session.audio.input.transcription.model", "Set the transcription model.")
        services.engine.realtime.find_transcriber(context, transcriber.model, None)
        return SessionLock(TRANSCRIPTION, transcription=transcriber.model)
    model = session.model or AUTO
    try:
        target = services.engine.realtime.find(context, model)
    except GatewayError as error:
        raise _unknown(error) from None
    instructions = session.instructions or ""
    if len(instructions) > MAX_TOKENS * CHARACTERS_PER_TOKEN:
        text = f"The instructions have more than an estimated {MAX_TOKENS} tokens."
        raise InvalidRequest(text, param="session.instructions", code="instructions_too_large")
    voice = (session.audio.output.voice or "") if session.audio and session.audio.output else ""
    voices = target.mapping.voices
    if voice and voices and voice not in voices:
        text = f"{model} does not have the voice {voice[:100]!r}; it has {', '.join(voices)}."
        raise InvalidRequest(text, param="session.audio.output.voice", code="voice_not_supported")
    transcription = _read_transcriber(transcriber)
    if transcription and services.engine.realtime.transcribes(target):
        own_transcriber(target.mapping, names_of(target.mapping, model), transcription)
    elif transcription:
        services.engine.realtime.find_transcriber(context, transcription, target)
    return SessionLock(REALTIME, f"{target.provider.id}/{target.mapping.model}", instructions, voice, transcription)


def _read_transcriber(transcriber: Transcriber | UnsetType | None) -> str | None:
    """Return the transcription model; "" for none, None where the secret does not fix it."""
    if transcriber is UNSET:
        return None
    model = transcriber.model if isinstance(transcriber, Transcriber) else ""
    if transcriber is not None and not model:
        raise _invalid("session.audio.input.transcription.model", "Set the transcription model, or send null.")
    return model


def _shown(lock: SessionLock) -> FixedSession:
    if lock.type == TRANSCRIPTION:
        return {"type": lock.type, "audio": {"input": {"transcription": {"model": lock.transcription}}}}
    return {"type": lock.type, "model": lock.model}


def _unknown(error: GatewayError) -> GatewayError:
    """Return the error for a model without sessions as an unknown model."""
    if isinstance(error, Forbidden) or not isinstance(error, InvalidRequest):
        return error
    return UnknownModel(error.message, param="session.model")


def _invalid(param: str, message: str) -> InvalidRequest:
    return InvalidRequest(message, param=param, code="invalid_request")


OPERATIONS = (
    Operation(
        "POST",
        "/v1/realtime/client_secrets",
        make_secret,
        body="json",
        about=About(
            "Create a client secret for realtime sessions",
            "Realtime",
            request=SecretBody,
            answer=ClientSecret,
        ),
    ),
)
