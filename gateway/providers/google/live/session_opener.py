"""Opens sessions with the Live API: URL, credential and first setup."""

from typing import TYPE_CHECKING, Any

from gateway.dialects import google as dialect
from gateway.errors import GatewayError, NotSupported
from gateway.ids import new_hex
from gateway.neutral.realtime import TRANSCRIPTION, RealtimeRequest
from gateway.neutral.request import Native
from gateway.providers.google.generate import Authorize, read_failure
from gateway.providers.google.traits import traits_of
from gateway.providers.identities.upstream_identity import signed_in
from gateway.providers.openers import Dial, SessionLink
from gateway.providers.protocol import Call, Target, UpstreamReply
from gateway.runtime.lazy_import import LazyImport
from gateway.transport.handshakes import HandshakeRefused

if TYPE_CHECKING:
    from gateway.providers.google.live import live_session as sessions
    from gateway.providers.google.live import session_setup as all_settings
    from gateway.providers.google.live import upstream_connection as connections
else:
    connections = LazyImport("gateway.providers.google.live.upstream_connection")
    sessions = LazyImport("gateway.providers.google.live.live_session")
    all_settings = LazyImport("gateway.providers.google.live.session_setup")

RECONNECT_TIMEOUT_S = 10.0  # timeout of opening a further connection of a session
GEMINI_API_PATH = "/ws/google.ai.generativelanguage.{version}.GenerativeService.BidiGenerateContent"
ENTERPRISE = "/ws/google.cloud.aiplatform.{version}.LlmBidiService/BidiGenerateContent"


class GoogleRealtime:
    """Codec of realtime sessions. `authorize` adds the credential to the headers."""

    dialect = dialect.NAME
    waits = True  # for a token
    transcribes = True

    def __init__(self, authorize: Authorize) -> None:
        self._authorize = authorize

    def write(self, request: RealtimeRequest, target: Target) -> Call:
        """Build the handshake. NotSupported for transcription sessions."""
        if request.content().type == TRANSCRIPTION:
            raise NotSupported(f"{target.mapping.key} does not support transcription sessions.", param="session.type")
        headers = {name.lower(): value for name, value in target.provider.headers.items()}
        self._authorize(headers, target)
        return Call("GET", address_of(target)[0], headers)

    def relay(self, native: Native, request: RealtimeRequest, target: Target) -> Call:
        """Build the handshake; a session has no body to relay."""
        return self.write(request, target)

    def read(self, reply: UpstreamReply, relayed: bool) -> Any:
        """Raise NotSupported: a session has no single response."""
        raise NotSupported("A realtime session is opened over a WebSocket.")

    def open(self, request: RealtimeRequest, target: Target, dial: Dial, seconds: float) -> "sessions.LiveSession":
        """Open a session with the default settings.

        Errors thus occur before the gateway answers the caller's handshake. Changes by the caller before the
        conversation begins open another connection.
        """
        settings = all_settings.LiveSettings(target, f"sess_{new_hex()}")
        model = address_of(target)[1]

        def connect(
            changed: "all_settings.LiveSettings", handle: str | None, timeout: float = RECONNECT_TIMEOUT_S
        ) -> "connections.LiveConnection":
            return connections.connect(dial_upstream, changed.setup(model, handle), timeout)

        def dial_upstream(timeout: float) -> SessionLink:
            # Later connections of a long session need the current token of a workload identity.
            return dial(self.write(request, signed_in(target)), timeout)

        def judge(refused: HandshakeRefused) -> GatewayError:
            return read_failure(refused, target)

        try:
            first = connect(settings, None, seconds)
        except HandshakeRefused as refused:
            raise connections.not_callers(refused) from None
        return sessions.LiveSession(settings, first, connect, judge)


def address_of(target: Target) -> tuple[str, str]:
    """Return the URL of the WebSocket, and the model's name in the setup."""
    base = target.address.partition("?")[0].rstrip("/")
    name = target.mapping.external_id
    if not traits_of(target).enterprise:
        root, _, version = base.rpartition("/")
        return f"{root}{GEMINI_API_PATH.format(version=version)}", name if "/" in name else f"models/{name}"
    scheme, _, rest = base.partition("://")
    host, version, *path = rest.split("/")
    model = "/".join([*path, "models", name])
    return f"{scheme}://{host}{ENTERPRISE.format(version=version)}", model
