"""The arguments and results of tools: content blocks, structured content, and errors that a model can read."""

from collections.abc import Mapping
from typing import Any

import orjson
from msgspec import Struct

from gateway.accounts.authentication import Caller
from gateway.errors import GatewayError
from gateway.surfaces.http import Inbound
from gateway.worker.services import Services

Json = dict[str, Any]


class ToolContext(Struct, frozen=True):
    """A tool call: its caller, the request that it came with, and its deadline (monotonic)."""

    services: Services
    inbound: Inbound
    caller: Caller
    deadline: float


def begin(services: Services, inbound: Inbound, caller: Caller) -> ToolContext:
    """Return the context of a call that begins now."""
    return ToolContext(services, inbound, caller, services.clock.monotonic() + services.settings.mcp.tool_timeout_s)


def text_of(text: str) -> Json:
    """Return a text content block."""
    return {"type": "text", "text": text}


def blocks(*content: Json) -> Json:
    """Return a result of content blocks."""
    return {"content": list(content)}


def structured(value: Mapping[str, Any], *content: Json) -> Json:
    """Return a structured result; without `content` its JSON is also the text."""
    return {"content": list(content) or [text_of(orjson.dumps(value).decode())], "structuredContent": value}


def failed(error: GatewayError) -> Json:
    """Return a result for a failed call: its status, stable code and message."""
    return {"content": [text_of(f"{error.status} {error.code}: {error.message}")], "isError": True}
