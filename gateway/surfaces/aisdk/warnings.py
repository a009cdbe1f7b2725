"""Warnings about options of a request that were not applied, in the one format that clients of all versions accept."""

from typing import Any

import orjson
from msgspec import to_builtins

from gateway.surfaces.aisdk import schema as wire

Json = dict[str, Any]


def unsupported(name: str) -> Json:
    """Return the warning for a call option that has no counterpart here."""
    return {"type": "unsupported", "feature": name, "details": f"{name} has no effect and was left out."}


def unsupported_tool(tool: wire.ProviderTool) -> Json:
    """Return the warning for a vendor's tool that is not supported; with the tool itself, because one client fails
    without it."""
    shown: Json = to_builtins(tool)
    try:
        orjson.dumps(shown)
    except TypeError:  # nested deeper, or with larger numbers, than a response can hold
        shown["args"] = {}
    return {
        "type": "unsupported-tool",
        "tool": shown,
        "feature": f"tool {tool.id}",
        "details": f"{tool.id} is not supported and was left out.",
    }


def other(message: str) -> Json:
    """Return the warning for a feature that the serving target does not support."""
    return {"type": "other", "message": message}
