"""GET /v1/realtime: sessions over WebSockets, relayed to a provider, and their client secrets."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.json import Decoder

from gateway.billing.context import RequestContext
from gateway.callers.authentication import Caller
from gateway.callers.credential_sources import OWN_SOURCE
from gateway.callers.realtime_secrets import PREFIX, FoundSecret
from gateway.engine.realtime.engine import OpenedSession
from gateway.engine.realtime.session import RealtimeSession
from gateway.errors import Forbidden, GatewayError, InvalidRequest, Unauthenticated, UnknownModel
from gateway.neutral.realtime import REALTIME, TRANSCRIPTION, ClientEvent, RealtimeInput, SessionLock, SessionType
from gateway.store.shared_slots import give
from gateway.surfaces.bodies.validation_errors import read_json
from gateway.surfaces.openai.realtime_events import OpenAIEvents, names_of, own_transcriber
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web import socket_handshakes as socket_handshakes_module
from gateway.surfaces.web.http import About, Inbound, Operation, Outbound
from gateway.transport.websocket_channels import SocketClosed
from gateway.worker.services import Services

if TYPE_CHECKING:
    from gateway.transport.websockets import Handshake


PATH = "/v1/realtime"
CALLS = "calls over WebRTC and SIP are not supported; connect to /v1/realtime over a WebSocket."
# Other realtime paths of the original API.
UNSUPPORTED_PATHS = {
    f"{PATH}/calls": CALLS,
    f"{PATH}/sessions": f"create a client secret with POST {PATH}/client_secrets.",
    f"{PATH}/transcription_sessions": f"create a client secret with POST {PATH}/client_secrets.",
    f"{PATH}/translations": "translation sessions are not supported.",
}
RESPONSE_OPERATION = f"GET {PATH} (response)"


def connect(services: Services, inbound: Inbound) -> Outbound:
    """Open a realtime session. All checks, and the connection to a provider, are complete before the caller's handshake
    is answered."""
    query = inbound.arguments()
    socket_handshakes_module.check_query(query)
    who = _authenticate(services, inbound)
    if not socket_handshakes_module.is_upgrade(inbound):
        text = f"{PATH} is a WebSocket endpoint; connect with a WebSocket client."
        raise InvalidRequest(text, status=426, code="websocket_required", headers=(("Upgrade", "websocket"),))
    handshake = socket_handshakes_module.read_handshake(services, inbound, PATH)
    services.engine.realtime.check_on()
    inbound.channel.owner = who.caller().organization_id
    model, opened = _read(query, who.lock, services.engine.realtime.is_name_of)
    context = auth_module.context_of(services, inbound, who.caller(), "realtime")
    # The content of a session is not retained.
    inbound.payload = context.payload = None
    session, first = _open(services, context, model, opened, who, inbound)
    takeover = Takeover(
        services, session, handshake, inbound, socket_handshakes_module.subprotocol_of(handshake), first
    )
    return Outbound(101, [], iter(()), takeover=takeover)


class SessionOwner:
    """The owner of a session: an API key, or a client secret with the settings that it fixes. `caller` authenticates
    again."""

    def __init__(self, caller: Callable[[], Caller], lock: SessionLock) -> None:
        self.caller = caller
        self.lock = lock


class Takeover:
    """Serves a session over the caller's connection; `first` is sent to the provider before any event of the caller."""

    def __init__(
        self,
        services: Services,
        session: RealtimeSession,
        handshake: "Handshake",
        inbound: Inbound,
        subprotocol: str | None,
        first: tuple[ClientEvent, ...],
    ) -> None:
        self._clock = services.clock
        self._session = session
        self._handshake = handshake
        self._inbound = inbound
        self._subprotocol = subprotocol
        self._first = first

    def __call__(self) -> None:
        inbound = self._inbound
        try:
            headers = [("x-request-id", inbound.shown_id)]
            socket = inbound.channel.open(self._handshake, self._subprotocol, headers)
            self._session.run(socket, self._first)
        except SocketClosed:
            return
        finally:
            self._session.close()
            context = inbound.context
            if context is not None and context.outcome is not None:
                # The provider's share of the duration, which is everything but the handshake.
                context.outcome.serving.ended = self._clock.monotonic()


def _authenticate(services: Services, inbound: Inbound) -> SessionOwner:
    """Authenticate by the header, as everywhere; else by the subprotocol that browsers must use."""
    token = socket_handshakes_module.token_of(inbound)
    if not token:
        raise Unauthenticated(
            "Send your API key as 'Authorization: Bearer <key>', or a client secret as the subprotocol "
            f"'{socket_handshakes_module.KEY_SUBPROTOCOL}<secret>'."
        )
    if token.startswith(PREFIX):
        secrets = services.accounts.realtime_secrets
        secret: FoundSecret = secrets.find(token)
        who = SessionOwner(partial(secrets.caller, secret), secret.lock)
    else:
        who = SessionOwner(partial(services.accounts.authentication.caller, token), SessionLock())
    inbound.caller = who.caller()
    return who


def _read(
    query: dict[str, str], lock: SessionLock, is_name_of: Callable[[str, str], bool]
) -> tuple[str, RealtimeInput]:
    """Return the model and the type of the session."""
    if "call_id" in query:
        raise InvalidRequest(f"There is no call to join: {CALLS}", param="call_id")
    model = query.get("model", "").strip()
    intent = query.get("intent", "")
    if intent not in ("", REALTIME, "conversation", TRANSCRIPTION):
        raise InvalidRequest("'intent' must be transcription, or absent.", param="intent")
    locked = bool(lock.model or lock.transcription)
    session_type: SessionType = TRANSCRIPTION if intent == TRANSCRIPTION else REALTIME
    if locked and lock.type == TRANSCRIPTION:
        return lock.transcription or "", RealtimeInput(TRANSCRIPTION)
    if lock.model:
        if model and not is_name_of(model, lock.model):
            text = f"The client secret fixes the model of its sessions: {lock.model}."
            raise InvalidRequest(text, param="model", code="model_locked")
        if session_type != lock.type:
            text = f"The client secret fixes the type of its sessions: {lock.type}."
            raise InvalidRequest(text, param="intent", code="session_type_locked")
        return lock.model, RealtimeInput(session_type)
    if not model and session_type != TRANSCRIPTION:
        raise InvalidRequest("Set the model in the URL: ?model=<id>.", param="model")
    return model, RealtimeInput(session_type)


def _open(
    services: Services, context: RequestContext, model: str, opened: RealtimeInput, who: SessionOwner, inbound: Inbound
) -> tuple[RealtimeSession, tuple[ClientEvent, ...]]:
    """Return a session, and the events that are sent to the provider first."""
    engine = services.engine.realtime
    session = engine.open(context, model, opened, _reporter(services, inbound))
    try:
        mapping = session.place.target.mapping
        names = names_of(mapping, model)
        transcriber = _transcriber(services, session, names)
        own = session.place.target.credential.source == OWN_SOURCE
        objects = own or services.settings.routing.provider_objects
        events = OpenAIEvents(opened.type, names, transcriber, who.lock, services.settings.limits, objects)
        if "transcriptions" in mapping.operations:
            events.transcription_model = model
        return engine.session(session, events, who.caller), events.opening()
    except BaseException:
        session.upstream.abort()
        give(session.slots)
        raise


def _transcriber(services: Services, opened: OpenedSession, names: frozenset[str]) -> Callable[[str], str]:
    """Return a function from a transcription model to the provider's name of it; `names` are those of the session's own
    model."""
    target = opened.place.target
    if not services.engine.realtime.transcribes(target):
        return opened.turns.settings.transcribe
    return lambda model: own_transcriber(target.mapping, names, model)


def _reporter(
    services: Services, inbound: Inbound
) -> Callable[[RequestContext, int, float, GatewayError | None], None]:
    """Return a function that reports each response to log, metrics and traces as a separate request."""
    end = services.telemetry.requests.of(RESPONSE_OPERATION, True)

    def report(context: RequestContext, status: int, started: float, error: GatewayError | None) -> None:
        arrival = Inbound(inbound.method, inbound.path, inbound.headers, peer=inbound.peer)
        arrival.request_id = context.request_id
        arrival.context = context
        arrival.caller = context.caller
        end(arrival, status, started, error)

    return report


ABOUT = About(
    "Open a realtime session (WebSocket)",
    "Realtime",
    success=(101,),
    answer=None,
)

OPERATIONS = (Operation("GET", PATH, connect, paid=True, upgrades=True, about=ABOUT),)


# POST /v1/realtime/client_secrets.

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


SECRET_OPERATIONS = (
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
