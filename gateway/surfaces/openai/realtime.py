"""GET /v1/realtime: sessions over WebSockets, relayed to a provider."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gateway.accounts.authentication import Caller
from gateway.accounts.realtime_secrets import PREFIX, FoundSecret
from gateway.billing.context import RequestContext
from gateway.engine.realtime.engine import OpenedSession
from gateway.engine.realtime.session import RealtimeSession, give
from gateway.errors import Forbidden, GatewayError, InvalidRequest, Unauthenticated
from gateway.neutral.realtime import REALTIME, TRANSCRIPTION, ClientEvent, RealtimeInput, SessionLock, SessionType
from gateway.runtime.lazy_import import LazyImport
from gateway.surfaces import auth
from gateway.surfaces.http import About, Inbound, Operation, Outbound
from gateway.surfaces.openai.realtime_events import OpenAIEvents, names_of, own_transcriber
from gateway.transport.handshakes import SUBPROTOCOL, SocketClosed
from gateway.worker.services import Services

if TYPE_CHECKING:
    from gateway.transport import websockets
    from gateway.transport.websockets import Handshake
else:
    websockets = LazyImport("gateway.transport.websockets")

PATH = "/v1/realtime"
KEY_SUBPROTOCOL = "openai-insecure-api-key."
ANY = "*"
# URLs are kept in logs and histories, so they must not contain credentials.
CREDENTIALS = ("token", "api_key", "client_secret")
CALLS = "calls over WebRTC and SIP are not supported; connect to /v1/realtime over a WebSocket."
# Other realtime paths of the original API.
INSTEAD = {
    f"{PATH}/calls": CALLS,
    f"{PATH}/sessions": f"create a client secret with POST {PATH}/client_secrets.",
    f"{PATH}/transcription_sessions": f"create a client secret with POST {PATH}/client_secrets.",
    f"{PATH}/translations": "translation sessions are not supported.",
}
TURN = f"GET {PATH} (response)"


def connect(services: Services, inbound: Inbound) -> Outbound:
    """Open a realtime session. All checks, and the connection to a provider, are complete before the caller's handshake
    is answered."""
    query = inbound.arguments()
    for name in CREDENTIALS:
        if name in query:
            text = f"A credential must not stand in the URL ('{name}'): send it as a header, or as a subprotocol."
            raise InvalidRequest(text, param=name, code="credential_in_query")
    who = _authenticate(services, inbound)
    if inbound.header("upgrade").lower() != "websocket":
        text = f"{PATH} is a WebSocket endpoint; connect with a WebSocket client."
        raise InvalidRequest(text, status=426, code="websocket_required", headers=(("Upgrade", "websocket"),))
    _check_origin(services, inbound)
    handshake = websockets.Handshake(inbound.headers, PATH)
    if inbound.channel is None:
        raise InvalidRequest("This server cannot open WebSockets.", status=426, code="websocket_not_supported")
    services.engine.realtime.check_on()
    inbound.channel.owner = who.caller().organization_id
    model, opened = _read(query, who.lock, services.engine.realtime.is_name_of)
    context = auth.context_of(services, inbound, who.caller(), "realtime")
    # The content of a session is not retained.
    inbound.payload = context.payload = None
    session, first = _open(services, context, model, opened, who, inbound)
    if SUBPROTOCOL in handshake.offered:
        subprotocol = SUBPROTOCOL
    else:
        subprotocol = None
    takeover = Takeover(services, session, handshake, inbound, subprotocol, first)
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


def _check_origin(services: Services, inbound: Inbound) -> None:
    """Check the origin: browsers let a page of any origin open a WebSocket, so `security.cors_origins` is enforced
    here."""
    origin = inbound.header("origin")
    allowed = services.settings.security.cors_origins
    own = inbound.base_url.partition("://")
    if origin and not {ANY, origin} & {*allowed, f"{own[0]}://{own[2].partition('/')[0]}"}:
        text = f"Pages of {origin[:200]} may not open sessions; the operator sets GATEWAY_SECURITY_CORS_ORIGINS."
        raise Forbidden(text, code="origin_not_allowed")


def _authenticate(services: Services, inbound: Inbound) -> SessionOwner:
    """Authenticate by the header, as everywhere; else by the subprotocol that browsers must use."""
    token = auth.token_of(inbound)
    offered = [one.strip() for one in inbound.header("sec-websocket-protocol").split(",")]
    named = next((one for one in offered if one.startswith(KEY_SUBPROTOCOL)), "")
    token = token or named.removeprefix(KEY_SUBPROTOCOL)
    if not token:
        raise Unauthenticated(
            "Send your API key as 'Authorization: Bearer <key>', or a client secret as the subprotocol "
            f"'{KEY_SUBPROTOCOL}<secret>'."
        )
    if token.startswith(PREFIX):
        secrets = services.accounts.realtime_secrets
        found: FoundSecret = secrets.find(token)
        who = SessionOwner(partial(secrets.caller, found), found.lock)
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
    wanted: SessionType = TRANSCRIPTION if intent == TRANSCRIPTION else REALTIME
    if locked and lock.type == TRANSCRIPTION:
        return lock.transcription or "", RealtimeInput(TRANSCRIPTION)
    if lock.model:
        if model and not is_name_of(model, lock.model):
            text = f"The client secret fixes the model of its sessions: {lock.model}."
            raise InvalidRequest(text, param="model", code="model_locked")
        if wanted != lock.type:
            text = f"The client secret fixes the type of its sessions: {lock.type}."
            raise InvalidRequest(text, param="intent", code="session_type_locked")
        return lock.model, RealtimeInput(wanted)
    if not model and wanted != TRANSCRIPTION:
        raise InvalidRequest("Set the model in the URL: ?model=<id>.", param="model")
    return model, RealtimeInput(wanted)


def _open(
    services: Services, context: RequestContext, model: str, opened: RealtimeInput, who: SessionOwner, inbound: Inbound
) -> tuple[RealtimeSession, tuple[ClientEvent, ...]]:
    """Return a session, and the events that are sent to the provider first."""
    engine = services.engine.realtime
    found = engine.open(context, model, opened, _reporter(services, inbound))
    try:
        mapping = found.place.target.mapping
        names = names_of(mapping, model)
        transcriber = _transcriber(services, found, names)
        events = OpenAIEvents(opened.type, names, transcriber, who.lock, services.settings.limits)
        if "transcriptions" in mapping.operations:
            events.heard = model
        return engine.session(found, events, who.caller), events.opening()
    except BaseException:
        found.upstream.abort()
        give(found.slots)
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
    end = services.telemetry.requests.of(TURN, True)

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
    errors=(400, 401, 402, 403, 410, 426, 429, 502, 503, 504),
    answer=None,
)

OPERATIONS = (Operation("GET", PATH, connect, paid=True, upgrades=True, about=ABOUT),)
