"""The older HTTP+SSE transport (2024-11-05): a stream that announces where to post messages, and delivers their
responses.

Stream and message may reach different workers: a session is a mailbox, named by the key that opened it.
"""

from collections.abc import Iterator

from gateway.accounts.authentication import Caller
from gateway.errors import Forbidden, GatewayError, NotSupported, RateLimited, Unavailable
from gateway.store.mailboxes import MAX_MESSAGE_BYTES, Mailbox
from gateway.surfaces import auth, http_responses
from gateway.surfaces.http import Inbound, Outbound
from gateway.surfaces.mcp import json_rpc
from gateway.surfaces.mcp.connection_checks import VERSION_HEADER
from gateway.surfaces.mcp.json_rpc import MethodCall
from gateway.worker.services import Services

EVENTS = "text/event-stream"
JSON = "application/json"
SESSION = "sessionId"
HEARTBEAT = b": keep-alive\n\n"
OPEN_TIMEOUT_S = 5.0


def wants_stream(inbound: Inbound) -> bool:
    """Return whether an older client subscribes: newer ones send their version, or accept JSON beside events."""
    accept = inbound.header("accept").lower()
    return inbound.method == "GET" and not inbound.header(VERSION_HEADER) and JSON not in accept


def open_stream(services: Services, inbound: Inbound, caller: Caller, path: str) -> Outbound:
    """Return the stream of a new session, which begins with its address. Raises RateLimited when the key has too many
    open streams."""
    mailboxes = services.store.mailboxes
    maximum = services.settings.mcp.max_streams
    if mailboxes.count(caller.key_id) >= maximum:
        raise RateLimited(
            f"A key may have {maximum} open streams; close one.", code="too_many_streams", retry_after=OPEN_TIMEOUT_S
        )
    box = mailboxes.open(caller.key_id)
    frames = _frames(services, inbound, caller, box, f"{inbound.base_url}{path}?{SESSION}={box.name}")
    next(frames)
    return http_responses.stream_reply(frames, inbound.shown_id, [("mcp-session-id", box.name)])


def _frames(services: Services, inbound: Inbound, caller: Caller, box: Mailbox, address: str) -> Iterator[bytes]:
    try:
        yield b""  # taken now: from here on, closing this generator also closes the mailbox
        yield f"event: endpoint\ndata: {address}\n\n".encode()
        while not box.ended:
            message = box.take(services.settings.timeouts.heartbeat_s)
            if message is not None:
                yield b"event: message\ndata: %b\n\n" % message
            elif not box.ended and _is_authorized(services, inbound, caller):
                yield HEARTBEAT
            else:
                break
    finally:
        services.store.mailboxes.close(box)


def _is_authorized(services: Services, inbound: Inbound, caller: Caller) -> bool:
    """Return whether the key that opened the stream is still valid; while the store is unavailable, it counts as
    valid."""
    try:
        return services.accounts.authentication.holds(caller) or bool(auth.caller_of(services, inbound))
    except Unavailable:
        return True
    except GatewayError:
        return False


class StreamSession:
    """The destination of a message's response: the stream named in its query, if it belongs to the same key."""

    def __init__(self, services: Services, key_id: str, place: str, name: str) -> None:
        self._services = services
        self._key_id = key_id
        self._place = place
        self._name = name

    def check_room(self) -> None:
        """Raise RateLimited when too many messages are waiting."""
        if not self._services.store.mailboxes.has_room(self._key_id, self._place):
            raise _full()

    def send(self, call: MethodCall, outbound: Outbound) -> Outbound:
        """Send the response body as an event of the stream and return the HTTP response for the POST. A response that
        is too long is replaced by an error event. Raises RateLimited when too many messages are waiting."""
        if isinstance(outbound.body, bytes):
            body = outbound.body
        else:
            body = b""
        if len(body) > MAX_MESSAGE_BYTES:
            body = json_rpc.refusal_of(call.ident, _too_long(len(body))).encode()
        if body and not self._services.store.mailboxes.post(self._key_id, self._place, self._name, body):
            raise _full()
        kept = [pair for pair in outbound.headers if pair[0].lower() != "content-type"]
        return Outbound(202, kept, failure=outbound.failure)


def session_of(services: Services, inbound: Inbound, caller: Caller) -> StreamSession | None:
    """Return the session that a message names; None for a message with a direct response. Raises Forbidden for a
    session that this key has not opened."""
    if inbound.query:
        name = inbound.arguments().get(SESSION)
    else:
        name = None
    if name is None:
        return None
    place = services.store.mailboxes.find(caller.key_id, name)
    if place is None:
        raise Forbidden("This key has no open stream for this session; open one with GET.", code="session_not_open")
    return StreamSession(services, caller.key_id, place, name)


def _too_long(size: int) -> GatewayError:
    return NotSupported(
        f"The response has {size:,} bytes, and a stream of this revision carries at most {MAX_MESSAGE_BYTES:,}; send "
        "the message by POST without a session, as revisions from 2025-03-26 on do.",
        code="answer_too_long",
    )


def _full() -> RateLimited:
    return RateLimited(
        "The streams of this key have too many unread messages; read them and try again.",
        code="stream_full",
        retry_after=OPEN_TIMEOUT_S,
    )
