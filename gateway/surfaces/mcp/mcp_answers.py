"""Messages of MCP, and the public information of the server."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import UNSET, Meta, UnsetType

from gateway.surfaces.answer_structs import Answer, JsonObject, Url

Result = Annotated[Any, Meta(extra_json_schema={"type": "object"})]  # an object, or its JSON


class McpCall(TypedDict):
    """A message of a client: a request, a notification, or a response."""

    jsonrpc: Literal["2.0"]
    id: NotRequired[Annotated[str | int, Meta(description="Absent in a notification, which gets no response.")]]
    method: NotRequired[str]
    params: NotRequired[JsonObject]
    result: NotRequired[JsonObject]
    error: NotRequired[JsonObject]


class McpErrorAnswer(Answer):
    code: int
    message: str
    data: JsonObject | UnsetType = UNSET


class McpMessageAnswer(Answer, kw_only=True):
    """A JSON-RPC response: a result or an error. `id` is that of the request, or null if it was not read."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: str | int | None
    result: Result | UnsetType = UNSET
    error: McpErrorAnswer | UnsetType = UNSET


class McpFaultAnswer(Answer, kw_only=True):
    """A JSON-RPC error response."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: str | int | None
    error: McpErrorAnswer


class McpServerAnswer(Answer):
    name: str
    version: str
    description: str
    protocol_version: str
    transport: str
    endpoint: Url
    documentation: Url
    capabilities: JsonObject
