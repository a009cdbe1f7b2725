"""Opens sessions with the Live API: the address, the credential, and the first setup."""

from typing import TYPE_CHECKING, Any

from gateway.dialects import google as dialect
from gateway.errors import GatewayError, NotSupported
from gateway.ids import new_hex
from gateway.neutral.realtime import TRANSCRIPTION, RealtimeRequest
from gateway.neutral.request import Native
from gateway.providers.google.failure import read_failure
from gateway.providers.google.generate import Authorize
from gateway.providers.google.traits import traits_of
from gateway.providers.openers import Dial
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

AGAIN_S = 10.0  # how long another connection of a session may take
STUDIO = "/ws/google.ai.generativelanguage.{version}.GenerativeService.BidiGenerateContent"
ENTERPRISE = "/ws/google.cloud.aiplatform.{version}.LlmBidiService/BidiGenerateContent"


class GoogleRealtime:
    """`authorize` puts the credential into headers."""

    dialect = dialect.NAME
    waits = True  # for a token
    transcribes = True

    def __init__(self, authorize: Authorize) -> None:
        self._authorize = authorize

    def write(self, request: RealtimeRequest, target: Target) -> Call:
        """The handshake. NotSupported for a session that is for transcripts alone."""
        if request.content().type == TRANSCRIPTION:
            raise NotSupported(f"{target.mapping.key} has no sessions for transcripts alone.", param="session.type")
        headers = {name.lower(): value for name, value in target.provider.headers.items()}
        self._authorize(headers, target)
        return Call("GET", address_of(target)[0], headers)

    def relay(self, native: Native, request: RealtimeRequest, target: Target) -> Call:
        """A session has no body to be relayed."""
        return self.write(request, target)

    def read(self, reply: UpstreamReply, relayed: bool) -> Any:
        """A session is no answer in one piece."""
        raise NotSupported("A realtime session is opened over a WebSocket.")

    def open(self, request: RealtimeRequest, target: Target, dial: Dial, seconds: float) -> "sessions.LiveSession":
        """A session that is set up as usual; what its caller changes before anything is said sets up another one.
        So whoever cannot be served here is known before the caller's handshake is answered."""
        settings = all_settings.LiveSettings(target, f"sess_{new_hex()}")
        model = address_of(target)[1]

        def connect(
            wanted: "all_settings.LiveSettings", handle: str | None, within: float = AGAIN_S
        ) -> "connections.LiveConnection":
            setup = wanted.setup(model, handle)
            return connections.connect(lambda left: dial(self.write(request, target), left), setup, within)

        def judge(refused: HandshakeRefused) -> GatewayError:
            return read_failure(refused, target)

        try:
            first = connect(settings, None, seconds)
        except HandshakeRefused as refused:
            raise connections.not_callers(refused) from None
        return sessions.LiveSession(settings, first, connect, judge)


def address_of(target: Target) -> tuple[str, str]:
    """The URL of the WebSocket, and what the model is called there."""
    base = target.address.partition("?")[0].rstrip("/")
    name = target.mapping.external_id
    if not traits_of(target).enterprise:
        root, _, version = base.rpartition("/")
        return f"{root}{STUDIO.format(version=version)}", name if "/" in name else f"models/{name}"
    scheme, _, rest = base.partition("://")
    host, version, *path = rest.split("/")
    model = "/".join([*path, "models", name])
    return f"{scheme}://{host}{ENTERPRISE.format(version=version)}", model
