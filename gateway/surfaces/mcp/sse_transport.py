"""The older HTTP+SSE transport (2024-11-05): a stream that announces where to post messages, and delivers their
answers.

Stream and message may reach different workers: a session is a mailbox, named by the key that opened it.
"""

from collections.abc import Iterator

import orjson

from gateway.accounts.authentication import Caller
from gateway.errors import Forbidden, GatewayError, NotSupported, RateLimited, Unavailable
from gateway.store.mailboxes import LONGEST_MESSAGE, Mailbox
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
WAIT_S = 5.0


def wants_stream(inbound: Inbound) -> bool:
    """Whether an older client subscribes: newer ones tell their version, or take JSON beside events."""
    accept = inbound.header("accept").lower()
    return inbound.method == "GET" and not inbound.header(VERSION_HEADER) and JSON not in accept


def open_stream(services: Services, inbound: Inbound, caller: Caller, path: str) -> Outbound:
    """The stream of a new session, its address first. RateLimited when the key has as many as it may."""
    mailboxes = services.store.mailboxes
    most = services.settings.mcp.max_streams
    if mailboxes.count(caller.key_id) >= most:
        raise RateLimited(
            f"A key may have {most} open streams; close one.", code="too_many_streams", retry_after=WAIT_S
        )
    box = mailboxes.listen(caller.key_id)
    frames = _frames(services, inbound, caller, box, f"{inbound.base_url}{path}?{SESSION}={box.name}")
    next(frames)
    return http_responses.stream_reply(frames, inbound.shown_id, [("mcp-session-id", box.name)])


def _frames(services: Services, inbound: Inbound, caller: Caller, box: Mailbox, address: str) -> Iterator[bytes]:
    try:
        yield b""  # taken at once: from here on what closes this runs its end
        yield f"event: endpoint\ndata: {address}\n\n".encode()
        while not box.ended:
            message = box.take(services.settings.timeouts.heartbeat_s)
            if message is not None:
                yield b"event: message\ndata: %b\n\n" % message
            elif not box.ended and _is_let_in(services, inbound, caller):
                yield HEARTBEAT
            else:
                break
    finally:
        services.store.mailboxes.close(box)


def _is_let_in(services: Services, inbound: Inbound, caller: Caller) -> bool:
    """Whether the key that opened the stream is still good; while nobody can tell, it is."""
    try:
        return services.accounts.authentication.holds(caller) or bool(auth.caller_of(services, inbound))
    except Unavailable:
        return True
    except GatewayError:
        return False


class StreamSession:
    """Where the answer to a message is sent: the stream named in its query, if it belongs to the same key."""

    def __init__(self, services: Services, key_id: str, place: str, name: str) -> None:
        self._services = services
        self._key_id = key_id
        self._place = place
        self._name = name

    def check_room(self) -> None:
        """RateLimited where as much waits as may."""
        if not self._services.store.mailboxes.has_room(self._key_id, self._place):
            raise _full()

    def send(self, call: MethodCall, outbound: Outbound) -> Outbound:
        """Bring the body of an answer to the stream; what is answered in its place. An answer that is too long for it
        is told there as an error. RateLimited where too much waits there already."""
        if isinstance(outbound.body, bytes):
            body = outbound.body
        else:
            body = b""
        if len(body) > LONGEST_MESSAGE:
            body = orjson.dumps(json_rpc.refusal_of(call, _too_long(len(body))))
        if body and not self._services.store.mailboxes.post(self._key_id, self._place, self._name, body):
            raise _full()
        kept = [pair for pair in outbound.headers if pair[0].lower() != "content-type"]
        return Outbound(202, kept, failure=outbound.failure)


def session_of(services: Services, inbound: Inbound, caller: Caller) -> StreamSession | None:
    """The session that a message names; None for one that wants its answer at once. Forbidden for one that this key
    has not open."""
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
        f"The response has {size:,} bytes, and a stream of this revision carries at most {LONGEST_MESSAGE:,}; send the "
        "message by POST without a session, as revisions from 2025-03-26 on do.",
        code="answer_too_long",
    )


def _full() -> RateLimited:
    return RateLimited(
        "The streams of this key have too many unread messages; read them and try again.",
        code="stream_full",
        retry_after=WAIT_S,
    )
