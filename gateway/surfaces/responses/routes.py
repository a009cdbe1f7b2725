"""The operations of /v1/responses."""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct

from gateway.callers.authentication import Caller
from gateway.clock import Clock
from gateway.configuration.settings import LimitSettings
from gateway.dialects import responses_vocabulary as dialect
from gateway.engine.realtime.session import CallerSocket, WatchedLink, WatchedSession
from gateway.engine.stored_responses import ConversationLoad, StoredResponse
from gateway.errors import (
    GatewayError,
    Gone,
    Internal,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from gateway.jobs.response_jobs import COMPLETED, INCOMPLETE
from gateway.neutral.chat import ChatRequest
from gateway.runtime.byte_budget import ByteBudget, HeldBytes
from gateway.runtime.disconnects import CallerGone, dismiss
from gateway.runtime.threads import compute_if, hold, later, spawn
from gateway.store.shared_slots import HeldSlots, SessionsFull, give
from gateway.surfaces.bodies.token_estimates import estimate_tokens
from gateway.surfaces.responses import background, compact, response_creation, schema, socket_turns, store
from gateway.surfaces.responses.response_answers import CompactedResponse, ResponseEvent, ResponseObject
from gateway.surfaces.responses.socket_memory import SocketMemory
from gateway.surfaces.responses.socket_turns import PATH, ClientFrame, EventSender, SocketTurns
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import caps as caps_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web import socket_handshakes as socket_handshakes_module
from gateway.surfaces.web.answer_structs import RELAYED, ModelApiAnswer
from gateway.surfaces.web.facts import headers_of
from gateway.surfaces.web.http import About, Inbound, Operation, Outbound, Surface
from gateway.surfaces.web.http_responses import OUR_FAULT
from gateway.transport.websocket_channels import FAULT, GOING_AWAY, POLICY, SocketClosed
from gateway.worker.services import Services

if TYPE_CHECKING:
    from gateway.transport.websockets import Handshake


# A WebSocket at GET /v1/responses: reads the caller's messages and runs their turns, those of one stream in order and
# those of several streams at once.

log = logging.getLogger("gateway")

CLOSE_TIMEOUT_S = 2.0  # how long a caller may take to answer a close frame
SETTLE_TIMEOUT_S = 1.0  # how long turns that are ended may take to settle
# As of the original API: openai.com, guide "WebSocket mode", read in November 2026.
MAX_RUNNING_TURNS = 16
MAX_STREAMS = 32
MAX_WAITING = 32
RESTARTING_MESSAGE = "The server is restarting; connect again."


class SocketWatch(Struct, frozen=True):
    """The conditions under which a socket stays open.

    `check` raises when its credential is no longer valid; `leaving` returns whether the worker shuts down; `longest_s`
    is the longest duration; `running` are the sockets of the worker, `slots` its share of the simultaneous ones of its
    key and organization.
    """

    check: Callable[[], object]
    leaving: Callable[[], bool]
    longest_s: float
    running: set[object]
    clock: Clock
    slots: tuple[HeldSlots, ...] = ()


@dataclass(slots=True)
class _Stream:
    """The waiting turns of one stream, and the greenlet of the current one."""

    waiting: deque[tuple[ClientFrame, bytes, HeldBytes]] = field(default_factory=deque)
    running: Any = None


class SocketSession(WatchedSession):
    """An open socket. `run` serves it until either side ends it. `serve` runs one turn and sends its events."""

    def __init__(
        self,
        serve: Callable[[EventSender, ClientFrame, bytes], None],
        memory: SocketMemory,
        watch: SocketWatch,
    ) -> None:
        self._serve = serve
        self._memory = memory
        self._budget: ByteBudget = memory.budget
        self._watch = watch
        self._streams: dict[str, _Stream] = {}
        self._ended = False  # further messages of the caller are ignored
        self._began = watch.clock.monotonic()
        self._socket: CallerSocket  # set by `run`

    def run(self, socket: CallerSocket) -> None:
        """Serve until the end. When this returns, each turn is settled, or is read on for its usage."""
        self._watch.running.add(self)
        self._socket = socket
        ticker = spawn(self._watch_links, self._watch.clock, self._began, [socket])
        try:
            while self._receive(socket):
                pass
            socket.linger()
        except SocketClosed:
            pass
        finally:
            self._watch.running.discard(self)
            self._ended = True
            ticker.kill(block=False)
            socket.close(GOING_AWAY)  # unless a close frame was already sent
            socket.abort()
            self._end_turns()
            self._memory.close()

    # Messages.

    def _receive(self, socket: CallerSocket) -> bool:
        """Take the next message; returns whether the connection continues. No variable of `run` holds the message while
        the connection waits for another one: it may have megabytes, and nothing counts them any more."""
        text = socket.receive()
        if text is not None and not self._ended:
            self._take(socket, text.encode())
        return text is not None

    def _take(self, socket: CallerSocket, text: bytes) -> None:
        """Queue the turn of a message, or answer it."""
        stream = ""
        try:
            frame = compute_if(len(text) >= caps_module.LARGE, socket_turns.read_frame, text)
            stream = frame.stream
            if frame.type == socket_turns.CREATE_EVENT:
                self._add(socket, frame, text)
            elif frame.type == socket_turns.STEER:
                socket.send(socket_turns.write_steer_failure(frame))
        except GatewayError as error:
            socket.send(socket_turns.write_error(error, stream))

    def _add(self, socket: CallerSocket, frame: ClientFrame, text: bytes) -> None:
        name = frame.stream
        if name not in self._streams and len(self._streams.keys() | {""}) > MAX_STREAMS and name:
            text_of_limit = f"A connection has at most {MAX_STREAMS} streams; use one of them, or open another."
            raise InvalidRequest(text_of_limit, param="stream_id", code="websocket_stream_limit_reached")
        if sum(len(stream.waiting) for stream in self._streams.values()) >= MAX_WAITING:
            text_of_limit = f"At most {MAX_WAITING} responses may wait on a connection; wait for one to end."
            raise RateLimited(text_of_limit, code="websocket_queue_full", retry_after=1.0)
        held = HeldBytes(self._budget, self._memory.owner)
        held.grow(len(text))
        self._streams.setdefault(name, _Stream()).waiting.append((frame, text, held))
        self._start(socket)

    def _start(self, socket: CallerSocket) -> None:
        """Start the next turns, unless the socket ends."""
        if self._ended or self._watch.leaving() or self._is_over():
            return
        for stream in self._streams.values():
            if stream.waiting and stream.running is None and self._busy() < MAX_RUNNING_TURNS:
                stream.running = spawn(self._run_turn, socket, stream)

    def _busy(self) -> int:
        return sum(stream.running is not None for stream in self._streams.values())

    def _run_turn(self, socket: CallerSocket, stream: _Stream) -> None:
        frame, text, held = stream.waiting.popleft()
        hold(held)
        try:
            self._serve(socket, frame, text)
        except SocketClosed:
            socket.abort()  # the connection's own greenlet notices it too
        except Exception:
            log.exception("a turn of a WebSocket failed")
            self._end(socket, Internal(OUR_FAULT))
        finally:
            hold(None)
            held.release()
            stream.running = None
            self._start(socket)

    # Timeouts.

    def _check(self, now: float) -> None:
        watch = self._watch
        self._renew_slots()
        if self._busy():
            return  # a turn is finished in any case
        if watch.leaving():
            self._end(self._socket, None, RESTARTING_MESSAGE)
            return
        if self._is_over():
            text = f"A connection lasts at most {watch.longest_s:g} seconds: open another one."
            raise Gone(text, code="websocket_connection_limit_reached", status=400)
        watch.check()

    def _renew_slots(self) -> None:
        try:
            for held in self._watch.slots:
                held.renew()
        except Unavailable:
            pass  # without the store the socket stays open, and its slots end

    def _fail(self, error: GatewayError) -> None:
        self._end(self._socket, error)

    def _end_silent(self, link: WatchedLink) -> None:
        self._end(self._socket, None, "Nothing was received.")

    def _is_over(self) -> bool:
        """Return whether the connection has lasted as long as it may."""
        longest_s = self._watch.longest_s
        return 0 < longest_s <= self._watch.clock.monotonic() - self._began

    # The end.

    def _end(self, socket: CallerSocket, error: GatewayError | None, reason: str = "") -> None:
        """Send the reason why the connection ends; only the first call has an effect."""
        if self._ended:
            return
        self._ended = True
        code = GOING_AWAY
        if error is not None:
            code = FAULT if error.status >= 500 else POLICY
            reason = error.code
            try:
                socket.send(socket_turns.write_error(error))
            except SocketClosed:
                pass
        socket.close(code, reason)
        later(CLOSE_TIMEOUT_S, socket.abort)  # give the caller a moment to read the last messages and answer

    def _end_turns(self) -> None:
        """End all turns as after a disconnect: those that must be paid are read on for their usage."""
        ending = []
        for stream in self._streams.values():
            for _, _, held in stream.waiting:
                held.release()
            stream.waiting.clear()
            if stream.running is not None and not dismiss(stream.running, CallerGone()):
                ending.append(stream.running)
        for greenlet in ending:
            greenlet.join(SETTLE_TIMEOUT_S)


# 426 makes coding clients switch to HTTP at once (RFC 9110, 15.5.22).
WEBSOCKETS_DISABLED = "WebSockets are disabled (responses.socket_s of the gateway); send POST /v1/responses over HTTP."
TOO_MANY = "WebSockets are already open; close one, or send POST /v1/responses over HTTP."
NO_CREDENTIAL = (
    "Send your API key as 'Authorization: Bearer <key>', or as the subprotocol "
    f"'{socket_handshakes_module.KEY_SUBPROTOCOL}<key>'."
)


def open_socket(services: Services, inbound: Inbound) -> Outbound:
    """Return the response that opens a socket; its caller is authenticated, and again for each turn."""
    longest_s = services.settings.responses.socket_s
    if not longest_s:
        raise InvalidRequest(WEBSOCKETS_DISABLED, status=426, code="websocket_not_supported")
    socket_handshakes_module.check_query(inbound.arguments())
    token = socket_handshakes_module.token_of(inbound)
    if not token:
        raise Unauthenticated(NO_CREDENTIAL)
    check = partial(services.accounts.authentication.caller, token)
    caller = inbound.caller = check()
    handshake = socket_handshakes_module.read_handshake(services, inbound, PATH)
    if services.leaving:
        raise Unavailable(RESTARTING_MESSAGE)
    slots = _take_slots(services, caller)
    inbound.channel.owner = caller.organization_id
    memory = SocketMemory(services.background.bodies, caller.organization_id)
    turns = SocketTurns(services, inbound, token, memory)
    watch = SocketWatch(check, lambda: services.leaving, longest_s, services.sockets, services.clock, slots)
    session = SocketSession(turns.run, memory, watch)
    return Outbound(101, [], iter(()), takeover=partial(_serve, session, handshake, inbound, slots))


def _take_slots(services: Services, caller: Caller) -> tuple[HeldSlots, ...]:
    """Take one of the simultaneous sockets of the key and the organization. While the store is down, none are
    counted."""
    try:
        return services.background.response_sockets.take(caller.organization_id, caller.key_id)
    except Unavailable:
        return ()
    except SessionsFull as full:
        raise InvalidRequest(f"{full} {TOO_MANY}", status=426, code="too_many_websockets") from None


def _serve(session: SocketSession, handshake: "Handshake", inbound: Inbound, slots: tuple[HeldSlots, ...]) -> None:
    headers = [("x-request-id", inbound.shown_id)]
    try:
        socket = inbound.channel.open(handshake, socket_handshakes_module.subprotocol_of(handshake), headers)
        session.run(socket)
    except SocketClosed:
        return
    finally:
        give(slots)


NOT_RUNNING = "Only background responses can be cancelled; close the connection of any other one."


class TokenEstimateAnswer(ModelApiAnswer, tag_field="object", tag="response.input_tokens"):
    input_tokens: int


class ResponseDeletedAnswer(ModelApiAnswer, tag_field="object", tag="response"):
    id: str
    deleted: bool = True


def shorten(services: Services, inbound: Inbound) -> Outbound:
    """Compact a conversation. Send the result as the input of the next turn."""
    context = auth_module.admit(services, inbound, "chat", "responses")
    limits = services.settings.limits
    raw = inbound.body
    body = caps_module.read(limits, raw, schema.decode_compact, raw)
    load = response_creation.load_for(services, context, body)
    check = response_creation.replayer(services, inbound, context.caller)
    history, own, size = store.gather(body, services.engine.responses, context.caller, load, check)
    large = response_creation.is_large(raw, size, history, own)
    request, users = compute_if(large, _read_compact, limits, raw, body, history, own)
    request.large = large
    answer = services.engine.chat.generate(context, request)
    facts = response_creation.facts_of(context, answer)
    headers = headers_of(facts, services.clock, streamed=False)
    written = compute_if(large, compact.write, answer.result, users, facts)
    return http_responses_module.json_reply(written, context.shown_id, headers=headers)


def _read_compact(
    limits: LimitSettings,
    raw: bytes,
    body: schema.CompactBody,
    history: list[dict[str, Any]],
    own: list[dict[str, Any]],
) -> tuple[ChatRequest, list[dict[str, Any]]]:
    caps_module.check(limits, raw, range(len(history) + len(own)), None)
    return compact.read_compaction(body, history, own)


def count(services: Services, inbound: Inbound) -> Outbound:
    """Estimate the number of input tokens of a response; nothing is sent upstream and nothing is charged."""
    context = auth_module.admit(services, inbound, "count_tokens", "responses")
    limits = services.settings.limits
    raw = inbound.body
    body = caps_module.read(limits, raw, schema.decode_count, raw)
    load = services.engine.responses.load_for(context.caller)
    check = response_creation.replayer(services, inbound, context.caller)
    history, own, size = store.gather(body, services.engine.responses, context.caller, load, check)
    large = response_creation.is_large(raw, size, history, own)
    turn = compute_if(large, response_creation.read, limits, raw, body, history, own)
    needs = turn.request.requirements
    if needs.documents:
        images, files = (0, needs.media)
    else:
        images, files = (needs.media, 0)
    tokens = estimate_tokens(needs.prompt_bytes, needs.messages, images, files, needs.tools)
    return http_responses_module.json_reply(TokenEstimateAnswer(tokens).encode(), context.shown_id)


def retrieve(services: Services, inbound: Inbound) -> Outbound:
    """Get a stored response. The events of one that was made in the background can be streamed, also while it is made:
    those after the number `starting_after`."""
    job = background.find(services, inbound)
    streamed = inbound.arguments().get("stream", "").lower() == "true"
    if job is not None and streamed:
        return background.stream(services, inbound, job)
    try:
        if job is not None and job.state not in (COMPLETED, INCOMPLETE):
            background.check(services, inbound, job)
            return _show(background.object_of(services, job), inbound)
        stored, _load = _find(services, inbound, whole=False)
    except NotFound:
        if job is None:
            raise
        background.check(services, inbound, job)
        return _show(background.object_of(services, job), inbound)
    if streamed:
        raise InvalidRequest("A stored response cannot be streamed; leave out stream.", param="stream")
    return compute_if(store.is_long(stored), _show, stored.response, inbound)


def _show(response: dict[str, Any], inbound: Inbound) -> Outbound:
    shown = store.show(response, sealed=_sealed(inbound), reasoned=store.asks_reasoning(response))
    return http_responses_module.json_reply(shown, inbound.shown_id)


def list_input(services: Services, inbound: Inbound) -> Outbound:
    """List the input items of a stored response: those of earlier turns and its own."""
    stored, _load = _find(services, inbound, whole=True)
    page = compute_if(store.is_long(stored), store.list_items, stored, inbound.arguments(), sealed=_sealed(inbound))
    return http_responses_module.json_reply(page.encode(), inbound.shown_id)


def delete(services: Services, inbound: Inbound) -> Outbound:
    """Delete a stored response."""
    ident = inbound.params["response_id"]
    caller = auth_module.caller_of(services, inbound)
    job = background.find(services, inbound)
    if job is not None:
        services.engine.response_jobs.cancel_job(job)
        services.engine.response_jobs.delete(ident)
    try:
        services.engine.responses.delete(caller, ident)
    except NotFound:
        if job is None:
            raise
    return http_responses_module.json_reply(ResponseDeletedAnswer(ident).encode(), inbound.shown_id)


def cancel(services: Services, inbound: Inbound) -> Outbound:
    """Cancel a response that is made in the background: what it used is billed. 400 for any other one."""
    job = background.find(services, inbound)
    if job is not None:
        return background.cancel(services, inbound, job)
    _find(services, inbound, whole=False)
    raise InvalidRequest(NOT_RUNNING, code="unsupported_operation")


def connect(services: Services, inbound: Inbound) -> Outbound:
    """Open a WebSocket: each response.create message creates a response, like a POST with `stream`."""
    if not socket_handshakes_module.is_upgrade(inbound):
        text = "GET is not allowed at /v1/responses; use POST, a WebSocket, or GET /v1/responses/{id}."
        raise MethodNotAllowed(text, headers=(("Allow", "OPTIONS, POST"),))
    return open_socket(services, inbound)


def _find(services: Services, inbound: Inbound, *, whole: bool) -> tuple[StoredResponse, ConversationLoad]:
    """Return the response, with its conversation if `whole`, and its load."""
    caller = auth_module.caller_of(services, inbound)
    load = services.engine.responses.load_for(caller)
    stored = services.engine.responses.find(caller, inbound.params["response_id"], load, whole=whole)
    response_creation.replayer(services, inbound, caller)(stored)
    return stored, load


def _sealed(inbound: Inbound) -> bool:
    """Return whether the query requests encrypted reasoning (`include`, once or several times, with brackets or
    without)."""
    return dialect.ENCRYPTED in inbound.query


RESPONSE_PATH = "/v1/responses/<response_id>"
RESPONSE_ANSWER = Annotated[ResponseObject, RELAYED]
ABOUT = About(
    "Create a response (OpenAI Responses dialect)",
    request=schema.ResponsesBody,
    answer=RESPONSE_ANSWER,
    events=Annotated[ResponseEvent, RELAYED],
)
ABOUT_SHORT = About("Compact a conversation", request=schema.ResponsesBody, answer=CompactedResponse)
ABOUT_COUNT = About("Estimate the input tokens of a response", request=schema.CountBody, answer=TokenEstimateAnswer)
ABOUT_SOCKET = About(
    "Create responses over a WebSocket",
    success=(101,),
    answer=None,
)
ABOUT_CANCEL = About("Cancel a background response", answer=RESPONSE_ANSWER)
OPERATIONS = (
    Operation("POST", "/v1/responses", response_creation.create, body="json", hot=True, paid=True, about=ABOUT),
    Operation("GET", "/v1/responses", connect, upgrades=True, about=ABOUT_SOCKET),
    Operation("POST", "/v1/responses/compact", shorten, body="json", paid=True, about=ABOUT_SHORT),
    Operation("POST", "/v1/responses/input_tokens", count, body="json", about=ABOUT_COUNT),
    Operation("GET", RESPONSE_PATH, retrieve, about=About("Get a stored response", answer=RESPONSE_ANSWER)),
    Operation("DELETE", RESPONSE_PATH, delete, about=About("Delete a stored response", answer=ResponseDeletedAnswer)),
    Operation(
        "GET",
        f"{RESPONSE_PATH}/input_items",
        list_input,
        about=About("List input items of a response", answer=store.ResponseItemsAnswer),
    ),
    Operation("POST", f"{RESPONSE_PATH}/cancel", cancel, about=ABOUT_CANCEL),
)

SURFACE = Surface("responses", http_responses_module.OPENAI, OPERATIONS)
