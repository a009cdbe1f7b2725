"""The methods of the protocol."""

from collections.abc import Callable
from typing import Any

import orjson
from msgspec import Raw

from gateway.errors import GatewayError
from gateway.surfaces.mcp import connection_checks, json_rpc, revisions, tool_table
from gateway.surfaces.mcp.json_rpc import Fault, Json, MethodCall
from gateway.surfaces.mcp.tool_results import ToolContext

DESCRIPTION = "Account and usage reports, chat, images and model lists of this LLM gateway, by one API key."
CALL = "tools/call"
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
            CALL: self._call,
        }
        self._stateless: dict[str, Callable[[ToolContext, Json], Given]] = {
            "server/discover": _discover,
            "tools/list": self._list_cacheable_tools,
            CALL: self._call,
        }

    def run(self, ctx: ToolContext, call: MethodCall, stateless: bool) -> Given:
        """Return the result, and its error if it reports one. Raises Fault; RateLimited."""
        method = (self._stateless if stateless else self._of_handshakes).get(call.method)
        if method is None:
            raise Fault(json_rpc.UNKNOWN_METHOD, "The method is unknown.")
        result, failure = method(ctx, call.params)
        return revisions.complete(result) if stateless else result, failure

    def calls_a_tool(self, call: MethodCall) -> bool:
        """Return whether the message calls an existing tool."""
        return call.method == CALL and self._toolbox.find(call.params.get("name")) is not None

    def _list_tools(self, ctx: ToolContext, params: Json) -> Given:
        return self._listed, None

    def _list_cacheable_tools(self, ctx: ToolContext, params: Json) -> Given:
        return {**self._listed, **revisions.CACHEABLE}, None

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
    if version not in connection_checks.VERSIONS:
        version = connection_checks.VERSIONS[0]
    result = {
        "protocolVersion": version,
        "capabilities": CAPABILITIES,
        "serverInfo": revisions.SERVER,
        "instructions": DESCRIPTION,
    }
    return result, None


def _ping(ctx: ToolContext, params: Json) -> Given:
    return {}, None


def _discover(ctx: ToolContext, params: Json) -> Given:
    result = {
        "supportedVersions": list(connection_checks.SUPPORTED),
        "capabilities": CAPABILITIES,
        "instructions": DESCRIPTION,
        **revisions.CACHEABLE,
    }
    return result, None
