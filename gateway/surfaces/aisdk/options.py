"""`providerOptions` of messages, parts and tools: cache marks, data that the gateway returned earlier as
`providerMetadata`, and warnings about options that were not applied."""

from typing import Any

import orjson
from msgspec import to_builtins

from gateway.dialects.aisdk import ID_MEMBER, MARKING, OWN_NAMESPACE, SEALED, SIGNATURE, SUMMARY, VENDOR
from gateway.neutral.parts import CacheMark, Reasoning
from gateway.surfaces.aisdk import schema as wire

CACHE_CONTROL_NAMES = ("cacheControl", "cache_control")
CACHE_TTLS = ("5m", "1h")
NO_OPTIONS: dict[str, Any] = {}


def read_mark(options: Any) -> CacheMark | None:
    """Return the cache mark in the options of any vendor's namespace; None where none is known."""
    if type(options) is not dict:
        return None
    for namespace in MARKING:
        given = options.get(namespace)
        if type(given) is not dict:
            continue
        for name in CACHE_CONTROL_NAMES:
            control = given.get(name)
            if type(control) is dict and control.get("type") == "ephemeral":
                life = control.get("ttl")
                return CacheMark(life if life in CACHE_TTLS else "")
    return None


def read_own(options: Any) -> dict[str, Any]:
    """Return the gateway's namespace; empty where there is none."""
    own = options.get(OWN_NAMESPACE) if type(options) is dict else None
    if type(own) is dict:
        return own
    return NO_OPTIONS


def read_signature(options: Any) -> tuple[str, str]:
    """Return the opaque signature of a text or call, and its vendor."""
    own = read_own(options)
    return word(own, SIGNATURE), word(own, VENDOR)


def read_reasoning(text: str, options: Any) -> Reasoning:
    """Return a block of reasoning with all data that its vendor needs back."""
    own = read_own(options)
    if not own:
        return Reasoning(text)
    return Reasoning(
        text,
        word(own, SIGNATURE),
        word(own, SEALED),
        word(own, VENDOR),
        word(own, ID_MEMBER),
        own.get(SUMMARY) is True,
    )


def write_reasoning(part: Reasoning) -> dict[str, Any]:
    """Return the metadata of a block of reasoning; empty when no vendor needs any of it back."""
    marks = {SIGNATURE: part.signature, SEALED: part.sealed, VENDOR: part.vendor, ID_MEMBER: part.ident}
    own: dict[str, Any] = {name: value for name, value in marks.items() if value}
    if part.summary:
        own[SUMMARY] = True
    if own:
        return {OWN_NAMESPACE: own}
    return {}


def write_signature(signature: str, vendor: str) -> dict[str, Any]:
    """Return the metadata of a signed text or call; empty when it is not signed."""
    if signature:
        return {OWN_NAMESPACE: {SIGNATURE: signature, VENDOR: vendor}}
    return {}


def word(own: dict[str, Any], name: str) -> str:
    value = own.get(name)
    if isinstance(value, str):
        return value
    return ""


# Warnings about options of a request that were not applied, in the one format that clients of all versions accept.

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
