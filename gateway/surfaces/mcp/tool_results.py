"""What tools receive and return: content blocks, structured content, and errors that a model can read."""

from dataclasses import dataclass
from typing import Any

import orjson

from gateway.accounts.authentication import Caller
from gateway.errors import GatewayError
from gateway.surfaces.http import Inbound
from gateway.worker.services import Services

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolContext:
    """A tool call: its caller, the request that it came with, and its deadline (monotonic)."""

    services: Services
    inbound: Inbound
    caller: Caller
    deadline: float


def begin(services: Services, inbound: Inbound, caller: Caller) -> ToolContext:
    """A call that begins now."""
    return ToolContext(services, inbound, caller, services.clock.monotonic() + services.settings.mcp.tool_timeout_s)


def text_of(text: str) -> Json:
    """A content block."""
    return {"type": "text", "text": text}


def blocks(*content: Json) -> Json:
    """A result of content blocks."""
    return {"content": list(content)}


def structured(value: Json, *content: Json) -> Json:
    """A result that programs read; without `content` its text says the same."""
    return {"content": list(content) or [text_of(orjson.dumps(value).decode())], "structuredContent": value}


def failed(error: GatewayError) -> Json:
    """A call that was refused or failed: its status, stable code and what to do."""
    return {"content": [text_of(f"{error.status} {error.code}: {error.message}")], "isError": True}
