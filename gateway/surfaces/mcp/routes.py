"""The operations of `/mcp`. Checks run in this order: origin, version, information, key, method, message."""

from collections.abc import Iterable

from gateway.errors import GatewayError, InvalidRequest, MethodNotAllowed, RateLimited, Unavailable
from gateway.surfaces import auth, http_responses, policy
from gateway.surfaces.http import About, Inbound, Operation, Outbound, Surface
from gateway.surfaces.mcp import connection_checks, json_rpc, revisions, sse_transport, tool_table
from gateway.surfaces.mcp.json_rpc import Fault, MethodCall
from gateway.surfaces.mcp.mcp_answers import McpCall, McpFaultAnswer, McpMessageAnswer, McpServerAnswer
from gateway.surfaces.mcp.methods import CAPABILITIES, DESCRIPTION, Methods
from gateway.surfaces.mcp.tool_results import ToolContext, begin, failed
from gateway.surfaces.mcp.tool_table import OfferedTool
from gateway.worker.services import Services

READS = ("GET", "HEAD")
READABLE = ("application/json", "application/*", "*/*")
HEADERS = (connection_checks.VARY,)


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
        connection_checks.check_origin(services, inbound)
        connection_checks.check_version(inbound)
        if inbound.method in READS and sse_transport.EVENTS not in inbound.header("accept").lower():
            return http_responses.json_reply(_information(inbound, self._path), inbound.shown_id)
        try:
            caller = connection_checks.caller_of(services, inbound)
        except Unavailable as error:
            return self._failed_call(services, inbound, error)
        if sse_transport.wants_stream(inbound):
            return sse_transport.open_stream(services, inbound, caller, self._path)
        if inbound.method != "POST":
            raise MethodNotAllowed(
                "Send messages by POST; streams and sessions are not supported.", headers=(("Allow", "POST"),)
            )
        auth.require_json(inbound)
        _check_accept(inbound)
        session = sse_transport.session_of(services, inbound, caller)
        call = json_rpc.read(services.settings.limits, inbound.body)
        if call is None:
            return Outbound(202, [*http_responses.PRIVATE, ("x-request-id", inbound.shown_id)])
        ctx = begin(services, inbound, caller)
        if session is None:
            return self._reply(ctx, call)
        return self._respond_by_stream(ctx, call, session)

    def _failed_call(self, services: Services, inbound: Inbound, error: Unavailable) -> Outbound:
        """Return the response to a tool call if the store is unavailable and the caller therefore unknown: a tool
        error, which a model can read. Raises `error` for all other messages, and where the response belongs to a
        stream."""
        if inbound.method == "POST":
            call = json_rpc.read(services.settings.limits, inbound.body)
        else:
            call = None
        if call is None or inbound.query or not self._methods.calls_a_tool(call):
            raise error
        try:
            stateless = revisions.is_stateless(inbound, call)
        except Fault:
            raise error from None
        if stateless:
            result = revisions.complete(failed(error))
        else:
            result = failed(error)
        outbound = http_responses.json_reply(json_rpc.result_of(call, result), inbound.shown_id)
        outbound.failure = error
        return outbound

    def _respond_by_stream(self, ctx: ToolContext, call: MethodCall, session: sse_transport.StreamSession) -> Outbound:
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
            stateless = revisions.is_stateless(ctx.inbound, call)
            result, failure = self._methods.run(ctx, call, stateless)
            body: McpMessageAnswer | McpFaultAnswer = json_rpc.result_of(call, result)
        except Fault as fault:
            body = json_rpc.fault_of(call, fault)
            status = revisions.status_of(fault, stateless)
            failure = fault.error
        except RateLimited as error:
            return _refused(error, ctx.inbound)
        outbound = http_responses.json_reply(body, shown_id, status)
        outbound.failure = failure
        return outbound


def offer(services: Services, inbound: Inbound) -> Outbound:
    """Get the methods of this path; CORS preflights are handled earlier."""
    return Outbound(204, [("Allow", "GET, HEAD, OPTIONS, POST"), *HEADERS])


def _refused(error: GatewayError, inbound: Inbound) -> Outbound:
    reply = http_responses.error_reply(error, json_rpc.about(inbound), inbound.shown_id)
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
        **revisions.SERVER,
        description=DESCRIPTION,
        protocol_version=connection_checks.VERSIONS[0],
        transport="streamable-http",
        endpoint=f"{inbound.base_url}{path}",
        documentation=f"{inbound.base_url}{policy.ADDRESS.partition('#')[0]}",
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


def surface(path: str = connection_checks.PATH, name: str = "mcp", more: Iterable[OfferedTool] = ()) -> Surface:
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
