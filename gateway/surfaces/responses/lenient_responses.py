"""Lenient parsing of Responses bodies: spellings of chat completions and of other dialects, and common mistakes.

Only a body that was rejected is parsed again here. Unknown spellings stay unchanged, and are rejected as before.
"""

from typing import Any

import orjson

from gateway.surfaces.lenient_parsing import OWN_TOOLS, read_choice, tool_type_of

Json = dict[str, Any]

ASSISTANT = "assistant"


def tools(listed: list[Any]) -> list[Any]:
    """Correct tools with members one level too deep, or without a type."""
    return [_tool(tool) for tool in listed]


def choice(given: Any) -> Any:
    """Correct a tool_choice: a word within an object, in another case, or nested."""
    return read_choice(given, _name_tool)


def _name_tool(kind: str, named: Json) -> Json:
    inner = named.get(kind)
    return {"type": kind, "name": inner.get("name") if isinstance(inner, dict) else named.get("name")}


def items(listed: list[Any]) -> list[Any]:
    """Convert input items in the spelling of chat completions: messages and calls."""
    return [_item(item) if isinstance(item, dict) else item for item in listed]


def _tool(tool: Any) -> Any:
    if not isinstance(tool, dict):
        return tool
    kind = tool_type_of(tool)
    if kind not in OWN_TOOLS:
        return tool
    inner = tool.get(kind)
    if isinstance(inner, dict):
        flat = {name: value for name, value in tool.items() if name != kind}
    else:
        flat = dict(tool)
    flat |= inner if isinstance(inner, dict) else {}
    if "input_schema" in flat and "parameters" not in flat:
        flat["parameters"] = flat.pop("input_schema")
    return {**flat, "type": kind}


def _item(item: Json) -> Json:
    role = item.get("role")
    if isinstance(role, str):
        return _message({**item, "role": role.lower()})
    if item.get("type") == "function_call":
        item = dict(item)
        if isinstance(item.get("arguments"), dict):
            item["arguments"] = orjson.dumps(item["arguments"]).decode()
        if not item.get("call_id") and item.get("id"):
            item["call_id"] = item["id"]
    return item


def _message(message: Json) -> Json:
    content = message.get("content")
    if message["role"] == "tool" and message.get("tool_call_id"):
        output = _content(content, "input_text")
        return {"type": "function_call_output", "call_id": message["tool_call_id"], "output": output or ""}
    return {**message, "content": _content(content, "output_text" if message["role"] == ASSISTANT else "input_text")}


def _content(content: Any, text: str) -> Any:
    if isinstance(content, dict):
        content = [content]
    if isinstance(content, list):
        return [_part(part, text) for part in content]
    return content


def _part(part: Any, text: str) -> Any:
    """Correct a content part: a bare text, a part of chat completions, an image with its URL in an object."""
    if isinstance(part, str):
        return {"type": text, "text": part}
    if not isinstance(part, dict):
        return part
    kind = part.get("type")
    image = part.get("image_url")
    if kind in ("text", None) and isinstance(part.get("text"), str):
        return {**part, "type": text}
    if image is not None and kind in ("image_url", "image", "input_image", None):
        if isinstance(image, dict):
            value = image
        else:
            value = {"url": image}
        detail = part.get("detail") or value.get("detail")
        return {"type": "input_image", "image_url": value.get("url"), **({"detail": detail} if detail else {})}
    return part
