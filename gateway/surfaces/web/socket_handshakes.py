"""The checks of a WebSocket's opening handshake: credentials, upgrade headers, and the origin of a page."""

from typing import TYPE_CHECKING

from gateway.errors import Forbidden, InvalidRequest
from gateway.runtime.lazy_import import LazyImport
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web.http import Inbound
from gateway.transport.websocket_channels import SUBPROTOCOL
from gateway.worker.services import Services

if TYPE_CHECKING:
    from gateway.transport import websockets
    from gateway.transport.websockets import Handshake
else:
    websockets = LazyImport("gateway.transport.websockets")

KEY_SUBPROTOCOL = "openai-insecure-api-key."
ANY_ORIGIN = "*"
# URLs are kept in logs and histories, so they must not contain credentials.
CREDENTIALS = ("token", "api_key", "client_secret")
NO_CHANNEL = "This server cannot open WebSockets."


def check_query(query: dict[str, str]) -> None:
    """Raise InvalidRequest for a credential in the URL."""
    for name in CREDENTIALS:
        if name in query:
            text = f"A credential must not stand in the URL ('{name}'): send it as a header, or as a subprotocol."
            raise InvalidRequest(text, param=name, code="credential_in_query")


def is_upgrade(inbound: Inbound) -> bool:
    """Return whether a request opens a WebSocket."""
    return inbound.header("upgrade").lower() == "websocket"


def token_of(inbound: Inbound) -> str:
    """Return the credential from the headers, else from the subprotocol that browsers must use, else ""."""
    offered = [protocol.strip() for protocol in inbound.header("sec-websocket-protocol").split(",")]
    named = next((protocol for protocol in offered if protocol.startswith(KEY_SUBPROTOCOL)), "")
    return auth_module.token_of(inbound) or named.removeprefix(KEY_SUBPROTOCOL)


def read_handshake(services: Services, inbound: Inbound, path: str) -> "Handshake":
    """Return the handshake of a request. Forbidden for a page of another origin, InvalidRequest for an invalid
    handshake or a server without WebSockets."""
    _check_origin(services, inbound)
    handshake = websockets.Handshake(inbound.headers, path)
    if inbound.channel is None:
        raise InvalidRequest(NO_CHANNEL, status=426, code="websocket_not_supported")
    return handshake


def subprotocol_of(handshake: "Handshake") -> str | None:
    """Return the subprotocol to accept; None when the caller offers none that is known."""
    if SUBPROTOCOL in handshake.offered:
        return SUBPROTOCOL
    return None


def _check_origin(services: Services, inbound: Inbound) -> None:
    """Check the origin: browsers let a page of any origin open a WebSocket, so `security.cors_origins` is enforced
    here."""
    origin = inbound.header("origin")
    allowed = services.settings.security.cors_origins
    own = inbound.base_url.partition("://")
    if origin and not {ANY_ORIGIN, origin} & {*allowed, f"{own[0]}://{own[2].partition('/')[0]}"}:
        text = f"Pages of {origin[:200]} may not open sessions; the operator sets GATEWAY_SECURITY_CORS_ORIGINS."
        raise Forbidden(text, code="origin_not_allowed")
