"""The operations of `/mcp`, in the order of the reference: origin, version, information, key, method, message."""

from typing import Any

from gateway import __version__
from gateway.accounts.authentication import Caller
from gateway.errors import GatewayError, InvalidRequest, MethodNotAllowed, RateLimited
from gateway.services import Services
from gateway.surfaces import auth, policy, replies
from gateway.surfaces.http import About, Inbound, Operation, Outbound, Surface
from gateway.surfaces.mcp import access, messages, tools
from gateway.surfaces.mcp.answers import Asked
from gateway.surfaces.mcp.generation import ReadChat
from gateway.surfaces.mcp.messages import Fault, Json, MethodCall

NAME, EVENTS = "llmgateway", "text/event-stream"
DESCRIPTION = "Account and usage reports, chat, images and model lists of this LLM gateway, by one API key."
READABLE = ("application/json", "application/*", "*/*")
HEADERS = (("Vary", "Accept, Origin"),)


class Endpoint:
    """What answers at `/mcp`."""

    def __init__(self, read_chat: ReadChat) -> None:
        self._tools = tools.Toolbox(read_chat)

    def inform(self, services: Services, inbound: Inbound) -> Outbound:
        """Public information on the server; there is no stream to subscribe to."""
        return self._answer(services, inbound)

    def take(self, services: Services, inbound: Inbound) -> Outbound:
        """One JSON-RPC message; a request is answered as JSON."""
        return self._answer(services, inbound)

    def refuse(self, services: Services, inbound: Inbound) -> Outbound:
        """No session is kept, so there is none to change or delete."""
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
        access.check_origin(services, inbound)
        access.check_version(inbound)
        reads = inbound.method in ("GET", "HEAD")
        if reads and EVENTS not in inbound.header("accept").lower():
            return replies.json_reply(_information(inbound), inbound.shown_id)
        caller = access.caller_of(services, inbound)
        if inbound.method != "POST":
            raise MethodNotAllowed(
                "Send messages by POST; there are no streams and no sessions here.", headers=(("Allow", "POST"),)
            )
        auth.require_json(inbound)
        _check_accept(inbound)
        call = messages.read(services.settings.limits, inbound.body)
        if call is None:
            return Outbound(202, [*replies.PRIVATE, ("x-request-id", inbound.shown_id)])
        return self._reply(services, inbound, caller, call)

    def _reply(self, services: Services, inbound: Inbound, caller: Caller, call: MethodCall) -> Outbound:
        failure: GatewayError | None = None
        try:
            result, failure = self._run(Asked(services, inbound, caller), call)
            body = messages.result_of(call, result)
        except Fault as fault:
            body = messages.fault_of(call, fault)
        except RateLimited as error:
            reply = replies.error_reply(error, messages.answering(call), inbound.shown_id)
            reply.failure = error
            return reply
        outbound = replies.json_reply(body, inbound.shown_id)
        outbound.failure = failure
        return outbound

    def _run(self, asked: Asked, call: MethodCall) -> tuple[Json, GatewayError | None]:
        if call.method == "initialize":
            return _initialize(call.params), None
        if call.method == "ping":
            return {}, None
        if call.method == "tools/list":
            return {"tools": self._tools.shown}, None
        if call.method == "tools/call":
            tool = self._tools.find(call.params.get("name"))
            if tool is None:
                raise Fault(messages.INVALID_PARAMS, "There is no tool of this name; tools/list has them.")
            given: Any = call.params.get("arguments")
            if given is not None and not isinstance(given, dict):
                raise Fault(messages.INVALID_PARAMS, "The arguments of a tool are an object.")
            return tools.call(tool, asked, given)
        raise Fault(messages.UNKNOWN_METHOD, "This method is not known here.")


def _check_accept(inbound: Inbound) -> None:
    """InvalidRequest (406) for a client that takes no JSON; one that names nothing takes anything."""
    accept = inbound.header("accept").lower()
    if accept and not any(kind in accept for kind in READABLE):
        raise InvalidRequest("Answers are JSON: accept application/json.", code="not_acceptable", status=406)


def _initialize(params: Json) -> Json:
    asked = params.get("protocolVersion")
    return {
        "protocolVersion": asked if asked in access.VERSIONS else access.VERSIONS[0],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": NAME, "version": __version__},
        "instructions": DESCRIPTION,
    }


def _information(inbound: Inbound) -> Json:
    return {
        "name": NAME,
        "version": __version__,
        "description": DESCRIPTION,
        "protocolVersion": access.VERSIONS[0],
        "transport": "streamable-http",
        "endpoint": f"{inbound.base_url}{access.PATH}",
        "documentation": f"{inbound.base_url}{policy.ADDRESS.partition('#')[0]}",
        "capabilities": {"tools": {}},
    }


MESSAGE = {"type": "object", "required": ["jsonrpc"], "properties": {"jsonrpc": {"const": "2.0"}}}
TAG = "MCP"
INFORM = About(
    "Information on the MCP server", TAG, access="none", answer={"type": "object"}, errors=(400, 401, 403, 405)
)
TAKE = About("One message of the Model Context Protocol", TAG, answer=MESSAGE, success=(200, 202))
REFUSE = About("No sessions", TAG, errors=(400, 401, 403, 405))


def surface(read_chat: ReadChat) -> Surface:
    """The surface; `read_chat` is how chat completions read a body, whose fields and limits hold for the chat tool."""
    endpoint = Endpoint(read_chat)
    operations = (
        Operation("GET", access.PATH, endpoint.inform, about=INFORM),
        Operation("POST", access.PATH, endpoint.take, body="json", paid=True, about=TAKE),
        *(Operation(method, access.PATH, endpoint.refuse, about=REFUSE) for method in ("DELETE", "PUT", "PATCH")),
    )
    return Surface("mcp", messages.ERRORS, operations, prefixes=(access.PATH,))
