"""Opens the WebSockets of GET /v1/responses."""

from functools import partial
from typing import TYPE_CHECKING

from gateway.errors import InvalidRequest, Unauthenticated, Unavailable
from gateway.surfaces import socket_handshakes
from gateway.surfaces.http import Inbound, Outbound
from gateway.surfaces.responses.socket_memory import SocketMemory
from gateway.surfaces.responses.socket_session import RESTARTING, SocketSession, SocketWatch
from gateway.surfaces.responses.socket_turns import PATH, SocketTurns
from gateway.transport.handshakes import SocketClosed
from gateway.worker.services import Services

if TYPE_CHECKING:
    from gateway.transport.websockets import Handshake

# 426 makes coding clients switch to HTTP at once (RFC 9110, 15.5.22).
DISABLED = "WebSockets are disabled (responses.socket_s of the gateway); send POST /v1/responses over HTTP."
NO_CREDENTIAL = (
    "Send your API key as 'Authorization: Bearer <key>', or as the subprotocol "
    f"'{socket_handshakes.KEY_SUBPROTOCOL}<key>'."
)


def open_socket(services: Services, inbound: Inbound) -> Outbound:
    """Return the response that opens a socket; its caller is authenticated, and again for each turn."""
    longest_s = services.settings.responses.socket_s
    if not longest_s:
        raise InvalidRequest(DISABLED, status=426, code="websocket_not_supported")
    socket_handshakes.check_query(inbound.arguments())
    token = socket_handshakes.token_of(inbound)
    if not token:
        raise Unauthenticated(NO_CREDENTIAL)
    check = partial(services.accounts.authentication.caller, token)
    caller = inbound.caller = check()
    handshake = socket_handshakes.read(services, inbound, PATH)
    if services.leaving:
        raise Unavailable(RESTARTING)
    inbound.channel.owner = caller.organization_id
    memory = SocketMemory(services.background.bodies, caller.organization_id)
    turns = SocketTurns(services, inbound, token, memory)
    watch = SocketWatch(check, lambda: services.leaving, longest_s, services.sockets, services.clock)
    session = SocketSession(turns.run, memory, watch)
    return Outbound(101, [], iter(()), takeover=partial(_serve, session, handshake, inbound))


def _serve(session: SocketSession, handshake: "Handshake", inbound: Inbound) -> None:
    headers = [("x-request-id", inbound.shown_id)]
    try:
        socket = inbound.channel.open(handshake, socket_handshakes.subprotocol_of(handshake), headers)
    except SocketClosed:
        return
    session.run(socket)
