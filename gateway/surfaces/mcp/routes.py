"""The operations of `/mcp`. Checks run in this order: origin, version, information, key, method, message."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson
from msgspec import Raw

from gateway.callers.authentication import Caller
from gateway.errors import (
    Forbidden,
    GatewayError,
    InvalidRequest,
    MethodNotAllowed,
    NotSupported,
    RateLimited,
    Unavailable,
)
from gateway.store.mailboxes import MAX_MESSAGE_BYTES, Mailbox
from gateway.surfaces.mcp import json_rpc, tool_table
from gateway.surfaces.mcp.json_rpc import (
    VERSION_HEADER,
    Fault,
    Json,
    McpCall,
    McpFaultAnswer,
    McpMessageAnswer,
    McpServerAnswer,
    MethodCall,
)
from gateway.surfaces.mcp.tool_schemas import ToolContext, begin, failed
from gateway.surfaces.mcp.tool_table import OfferedTool
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web import policy as policy_module
from gateway.surfaces.web.http import About, Inbound, Operation, Outbound, Surface
from gateway.worker.services import Services

# The older HTTP+SSE transport (2024-11-05): a stream that announces where to post messages, and delivers their
# responses.
#
# Stream and message may reach different workers: a session is a mailbox, named by the key that opened it.

EVENT_STREAM = "text/event-stream"
JSON = "application/json"
SESSION_PARAMETER = "sessionId"
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
    frames = _frames(services, inbound, caller, box, f"{inbound.base_url}{path}?{SESSION_PARAMETER}={box.name}")
    next(frames)
    return http_responses_module.stream_reply(frames, inbound.shown_id, [("mcp-session-id", box.name)])


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
        return services.accounts.authentication.holds(caller) or bool(auth_module.caller_of(services, inbound))
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
        body = outbound.body if isinstance(outbound.body, bytes) else b""
        if len(body) > MAX_MESSAGE_BYTES:
            body = json_rpc.refusal_of(call.ident, _too_long(len(body))).encode()
        if body and not self._services.store.mailboxes.post(self._key_id, self._place, self._name, body):
            raise _full()
        kept = [pair for pair in outbound.headers if pair[0].lower() != "content-type"]
        return Outbound(202, kept, failure=outbound.failure)


def session_of(services: Services, inbound: Inbound, caller: Caller) -> StreamSession | None:
    """Return the session that a message names; None for a message with a direct response. Raises Forbidden for a
    session that this key has not opened."""
    name = inbound.arguments().get(SESSION_PARAMETER) if inbound.query else None
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


# The methods of the protocol.

SERVER_DESCRIPTION = "Account and usage reports, chat, images and model lists of this LLM gateway, by one API key."
CALL_METHOD = "tools/call"
CAPABILITIES: Json = {"tools": {}}
Given = tuple[Json, GatewayError | None]


class Methods:
    """The methods for a set of tools."""

    def __init__(self, toolbox: tool_table.Toolbox) -> None:
        self._toolbox = toolbox
        # Identical for every caller, so it is serialized once.
        self._listed: Json = {"tools": Raw(orjson.dumps(toolbox.shown))}
        self._of_handshakes: dict[str, Callable[[ToolContext, Json], Given]] = {
            "initialize": _initialize,
            "ping": _ping,
            "tools/list": self._list_tools,
            CALL_METHOD: self._call,
        }
        self._stateless: dict[str, Callable[[ToolContext, Json], Given]] = {
            "server/discover": _discover,
            "tools/list": self._list_cacheable_tools,
            CALL_METHOD: self._call,
        }

    def run(self, ctx: ToolContext, call: MethodCall, stateless: bool) -> Given:
        """Return the result, and its error if it reports one. Raises Fault; RateLimited."""
        method = (self._stateless if stateless else self._of_handshakes).get(call.method)
        if method is None:
            raise Fault(json_rpc.UNKNOWN_METHOD, "The method is unknown.")
        result, failure = method(ctx, call.params)
        return json_rpc.complete(result) if stateless else result, failure

    def calls_a_tool(self, call: MethodCall) -> bool:
        """Return whether the message calls an existing tool."""
        return call.method == CALL_METHOD and self._toolbox.find(call.params.get("name")) is not None

    def _list_tools(self, ctx: ToolContext, params: Json) -> Given:
        return self._listed, None

    def _list_cacheable_tools(self, ctx: ToolContext, params: Json) -> Given:
        return {**self._listed, **json_rpc.CACHE_HINTS}, None

    def _call(self, ctx: ToolContext, params: Json) -> Given:
        tool = self._toolbox.find(params.get("name"))
        if tool is None:
            raise Fault(json_rpc.INVALID_PARAMS, "The tool is unknown; tools/list returns all tools.")
        given: Any = params.get("arguments")
        if given is not None and not isinstance(given, dict):
            raise Fault(json_rpc.INVALID_PARAMS, "The arguments of a tool must be an object.")
        return tool_table.call(tool, ctx, given)


def _initialize(ctx: ToolContext, params: Json) -> Given:
    version = params.get("protocolVersion")
    if version not in json_rpc.HANDSHAKE_VERSIONS:
        version = json_rpc.HANDSHAKE_VERSIONS[0]
    result = {
        "protocolVersion": version,
        "capabilities": CAPABILITIES,
        "serverInfo": json_rpc.SERVER,
        "instructions": SERVER_DESCRIPTION,
    }
    return result, None


def _ping(ctx: ToolContext, params: Json) -> Given:
    return {}, None


def _discover(ctx: ToolContext, params: Json) -> Given:
    result = {
        "supportedVersions": list(json_rpc.SUPPORTED_VERSIONS),
        "capabilities": CAPABILITIES,
        "instructions": SERVER_DESCRIPTION,
        **json_rpc.CACHE_HINTS,
    }
    return result, None


READING_METHODS = ("GET", "HEAD")
READABLE = ("application/json", "application/*", "*/*")
HEADERS = (json_rpc.VARY,)


class Endpoint:
    """The MCP endpoint at `path`, with the product's tools and `more`."""

    def __init__(self, path: str, more: Iterable[OfferedTool]) -> None:
        self._path = path
        self._methods = Methods(tool_table.Toolbox(more))

    def inform(self, services: Services, inbound: Inbound) -> Outbound:
        """Get public information about the server; clients of the oldest revision also open their event stream here."""
        return self._answer(services, inbound)

    def take(self, services: Services, inbound: Inbound) -> Outbound:
        """Send one JSON-RPC message; the response to a request is JSON."""
        return self._answer(services, inbound)

    def refuse(self, services: Services, inbound: Inbound) -> Outbound:
        """Not supported: the server is stateless, so there is no session to change or delete."""
        return self._answer(services, inbound)

    def _answer(self, services: Services, inbound: Inbound) -> Outbound:
        try:
            outbound = self._in_order(services, inbound)
        except GatewayError as error:
            error.headers = (*error.headers, *HEADERS)
            raise
        outbound.headers = [*outbound.headers, *HEADERS]
        return outbound

    def _in_order(self, services: Services, inbound: Inbound) -> Outbound:
        json_rpc.check_origin(services, inbound)
        json_rpc.check_version(inbound)
        if inbound.method in READING_METHODS and EVENT_STREAM not in inbound.header("accept").lower():
            return http_responses_module.json_reply(_information(inbound, self._path), inbound.shown_id)
        try:
            caller = json_rpc.caller_of(services, inbound)
        except Unavailable as error:
            return self._failed_call(services, inbound, error)
        if wants_stream(inbound):
            return open_stream(services, inbound, caller, self._path)
        if inbound.method != "POST":
            raise MethodNotAllowed(
                "Send messages by POST; streams and sessions are not supported.", headers=(("Allow", "POST"),)
            )
        auth_module.require_json(inbound)
        _check_accept(inbound)
        session = session_of(services, inbound, caller)
        call = json_rpc.read_call(services.settings.limits, inbound.body)
        if call is None:
            return Outbound(202, [*http_responses_module.PRIVATE, ("x-request-id", inbound.shown_id)])
        ctx = begin(services, inbound, caller)
        if session is None:
            return self._reply(ctx, call)
        return self._respond_by_stream(ctx, call, session)

    def _failed_call(self, services: Services, inbound: Inbound, error: Unavailable) -> Outbound:
        """Return the response to a tool call if the store is unavailable and the caller therefore unknown: a tool
        error, which a model can read. Raises `error` for all other messages, and where the response belongs to a
        stream."""
        call = json_rpc.read_call(services.settings.limits, inbound.body) if inbound.method == "POST" else None
        if call is None or inbound.query or not self._methods.calls_a_tool(call):
            raise error
        try:
            stateless = json_rpc.is_stateless(inbound, call)
        except Fault:
            raise error from None
        result = json_rpc.complete(failed(error)) if stateless else failed(error)
        outbound = http_responses_module.json_reply(json_rpc.result_of(call, result), inbound.shown_id)
        outbound.failure = error
        return outbound

    def _respond_by_stream(self, ctx: ToolContext, call: MethodCall, session: StreamSession) -> Outbound:
        """Return the response through the stream; a call is not executed if its response has no room there."""
        try:
            session.check_room()
            return session.send(call, self._reply(ctx, call))
        except RateLimited as error:
            return _refused(error, ctx.inbound)

    def _reply(self, ctx: ToolContext, call: MethodCall) -> Outbound:
        failure: GatewayError | None = None
        stateless = False
        status = 200
        shown_id = ctx.inbound.shown_id
        try:
            stateless = json_rpc.is_stateless(ctx.inbound, call)
            result, failure = self._methods.run(ctx, call, stateless)
            body: McpMessageAnswer | McpFaultAnswer = json_rpc.result_of(call, result)
        except Fault as fault:
            body = json_rpc.fault_of(call, fault)
            status = json_rpc.status_of(fault, stateless)
            failure = fault.error
        except RateLimited as error:
            return _refused(error, ctx.inbound)
        outbound = http_responses_module.json_reply(body, shown_id, status)
        outbound.failure = failure
        return outbound


def offer(services: Services, inbound: Inbound) -> Outbound:
    """Get the methods of this path; CORS preflights are handled earlier."""
    return Outbound(204, [("Allow", "GET, HEAD, OPTIONS, POST"), *HEADERS])


def _refused(error: GatewayError, inbound: Inbound) -> Outbound:
    reply = http_responses_module.error_reply(error, json_rpc.about(inbound), inbound.shown_id)
    reply.failure = error
    return reply


def _check_accept(inbound: Inbound) -> None:
    """Raise InvalidRequest (406) for a client that does not accept JSON; a client without an Accept header accepts
    anything."""
    accept = inbound.header("accept").lower()
    if accept and not any(kind in accept for kind in READABLE):
        raise InvalidRequest("Responses are JSON; accept application/json.", code="not_acceptable", status=406)


def _information(inbound: Inbound, path: str) -> McpServerAnswer:
    return McpServerAnswer(
        **json_rpc.SERVER,
        description=SERVER_DESCRIPTION,
        protocol_version=json_rpc.HANDSHAKE_VERSIONS[0],
        transport="streamable-http",
        endpoint=f"{inbound.base_url}{path}",
        documentation=f"{inbound.base_url}{policy_module.ADDRESS.partition('#')[0]}",
        capabilities=CAPABILITIES,
    )


TAG = "MCP"
SHOW_SERVER = About("Get information about the MCP server", TAG, access="optional", answer=McpServerAnswer)
SEND_MESSAGE = About(
    "Send a message of the Model Context Protocol",
    TAG,
    McpCall,
    answer=McpMessageAnswer,
    success=(200, 202),
    example={"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
)
OFFER = About("Get the allowed methods of the MCP server", TAG, access="none", success=(204,))
REFUSE = About("End a session (not supported)", TAG, success=())


def surface(path: str = json_rpc.PATH, name: str = "mcp", more: Iterable[OfferedTool] = ()) -> Surface:
    """Return the surface.

    An extension with its own tools passes them as `more`, with a separate path and name.
    """
    endpoint = Endpoint(path, more)
    operations = (
        Operation("GET", path, endpoint.inform, about=SHOW_SERVER),
        Operation("POST", path, endpoint.take, body="json", hot=True, paid=True, about=SEND_MESSAGE),
        Operation("OPTIONS", path, offer, about=OFFER),
        *(Operation(method, path, endpoint.refuse, about=REFUSE) for method in ("DELETE", "PUT", "PATCH")),
    )
    return Surface(name, json_rpc.ERRORS, operations, prefixes=(path,))


SURFACE = surface()
