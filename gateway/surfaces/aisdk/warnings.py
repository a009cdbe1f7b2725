"""Warnings about options of a request that were not applied, in the one format that clients of all versions accept."""

from typing import Any

import orjson
from msgspec import to_builtins

from gateway.surfaces.aisdk import schema as wire

Json = dict[str, Any]


def unsupported(name: str) -> Json:
    """A call option that has no counterpart here."""
    return {"type": "unsupported", "feature": name, "details": f"{name} has no effect and was left out."}


def unsupported_tool(tool: wire.ProviderTool) -> Json:
    """A tool of a vendor's own that is none here; with the tool itself, for one client fails without it."""
    shown: Json = to_builtins(tool)
    try:
        orjson.dumps(shown)
    except TypeError:  # nested deeper, or with larger numbers, than an answer can hold
        shown["args"] = {}
    return {
        "type": "unsupported-tool",
        "tool": shown,
        "feature": f"tool {tool.id}",
        "details": f"{tool.id} is not supported and was left out.",
    }


def other(message: str) -> Json:
    """What the target that served could not carry."""
    return {"type": "other", "message": message}
