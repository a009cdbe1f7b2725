"""Completes the parameters of functions: JSON Schemas that clients and MCP servers write and that services refuse, such
as arrays without `items`, and roots that are no object.

A schema that every service takes is returned as it is. The services' own words: "schema must be a JSON Schema of 'type:
\"object\"'", "array schema missing items", "reference can only point to definitions defined at the top level".
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, cast

import orjson
from msgspec import Raw, structs

from gateway.neutral.chat import Conversation, FunctionTool, Tool

Json = dict[str, Any]
NO_PARAMETERS: Json = {"type": "object", "properties": {}}
# Members of a schema that contain schemas: one, a list of them, or some by name.
SINGLE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
NAMED = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
UNIONS = ("anyOf", "oneOf", "allOf")
MAX_DEPTH = 100  # levels; deeper ones stay as they are
MAX_CACHED_BYTES = 1 << 14  # bytes of a schema that is cached


def complete(schema: Any) -> Json:
    """Return the parameters of a function as every service takes them; the same object if they already are."""
    if not isinstance(schema, dict) or not schema:
        return NO_PARAMETERS
    if not _is_object(schema):
        schema = _as_object(schema)
    if any(_is_faulty(inner, schema) for inner in _walk(schema)):
        schema = _mend(schema, schema, 0)
    complete_schema: Json = schema
    return complete_schema


def with_complete_schemas(conversation: Conversation) -> Conversation:
    """Return the conversation with complete parameters of its functions; the same object if they already are."""
    tools = tuple(_complete_tool(tool) for tool in conversation.tools)
    if all(new is old for new, old in zip(tools, conversation.tools, strict=True)):
        return conversation
    return structs.replace(conversation, tools=tools)


def _complete_tool(tool: Tool) -> Tool:
    if not isinstance(tool, FunctionTool) or tool.schema is None:
        return tool
    schema = _complete_known(tool.schema)
    return tool if schema is tool.schema else structs.replace(tool, schema=schema)


def complete_relayed(tools: list[Any]) -> list[Any]:
    """Return the tools of a caller's own chat or Responses body with complete parameters; the same list if they already
    are. Parameters of chat bodies are JSON text."""
    completed = [_complete_relayed(tool) for tool in tools]
    if all(new is old for new, old in zip(completed, tools, strict=True)):
        return tools
    return completed


def _complete_relayed(tool: Any) -> Any:
    if type(tool) is dict:
        return _complete_members(tool)
    function: Any = getattr(tool, "function", None)
    parameters = getattr(function, "parameters", None)
    if not isinstance(parameters, Raw):
        return tool
    text = bytes(memoryview(parameters))
    changed = _complete_text(text) if len(text) <= MAX_CACHED_BYTES else _complete_text.__wrapped__(text)
    if changed is None:
        return tool
    return structs.replace(tool, function=structs.replace(function, parameters=Raw(changed)))


def _complete_members(tool: Json) -> Json:
    """Return a function of a Responses body, or the namespace around some."""
    inner = tool.get("tools")
    if tool.get("type") == "namespace" and isinstance(inner, list):
        completed = complete_relayed(inner)
        return tool if completed is inner else {**tool, "tools": completed}
    parameters = tool.get("parameters")
    if tool.get("type") != "function" or parameters is None:
        return tool
    schema = _complete_known(parameters)
    return tool if schema is parameters else {**tool, "parameters": schema}


def _complete_known(schema: Any) -> Json:
    """Return the same as `complete`, without a walk through a schema that was completed before."""
    if not isinstance(schema, dict):
        return complete(schema)
    try:
        text = orjson.dumps(schema)
    except TypeError:  # such as a number of more than 64 bits
        return complete(schema)
    if len(text) > MAX_CACHED_BYTES:
        return complete(schema)
    changed = _complete_text(text)
    return schema if changed is None else cast(Json, orjson.loads(changed))


@lru_cache(maxsize=1024)
def _complete_text(text: bytes) -> bytes | None:
    """Return complete parameters as JSON text, None if they already are. Agents send the same tools in each turn."""
    try:
        schema = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    completed = complete(schema)
    return None if completed is schema else orjson.dumps(completed)


def _is_object(schema: Json) -> bool:
    return schema.get("type") == "object" and not any(name in schema for name in UNIONS)


def _as_object(schema: Json) -> Json:
    """Return a root as an object: with the properties of its alternatives, of which those in all are required."""
    kept = {name: value for name, value in schema.items() if name not in UNIONS}
    properties: Json = dict(kept["properties"]) if isinstance(kept.get("properties"), dict) else {}
    required = set(_texts(kept.get("required")))
    for name in UNIONS:
        needed = []
        for branch in _branches(schema.get(name), schema):
            for key, value in branch["properties"].items():
                properties.setdefault(key, value)
            needed.append(set(_texts(branch.get("required"))))
        if needed:
            required |= set.union(*needed) if name == "allOf" else set.intersection(*needed)
    if "$ref" in kept and kept.get("type") != "object":
        for branch in _branches([kept], schema):
            properties = {**branch["properties"], **properties}
            required |= set(_texts(branch.get("required")))
        del kept["$ref"]
    written = {**kept, "type": "object", "properties": properties}
    written.pop("items", None)
    written.pop("required", None)
    known = [name for name in properties if name in required]
    return {**written, "required": known} if known else written


def _branches(schemas: Any, root: Json) -> list[Json]:
    """Return the objects among alternatives, each once: many references to one large schema would take its size times
    their number."""
    found = (
        {id(target): target for each in schemas if (target := _deref(each, root))} if isinstance(schemas, list) else {}
    )
    return [target for target in found.values() if isinstance(target.get("properties"), dict)]


def _deref(schema: Any, root: Json) -> Json:
    if not isinstance(schema, dict):
        return {}
    found = _find(schema.get("$ref"), root)
    return found if isinstance(found, dict) else schema


def _find(reference: Any, root: Json) -> Any:
    """Return the schema that a reference within the same schema names, None for any other."""
    if reference == "#":
        return root
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    found: Any = root
    for step in reference[2:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or name not in found:
            return None
        found = found[name]
    return found


def _walk(root: Json) -> Iterator[Any]:
    """Yield a schema and all schemas within it."""
    left: list[Any] = [root]
    while left:
        schema = left.pop()
        yield schema
        if isinstance(schema, dict):
            left += _inner(schema)


def _inner(schema: Json) -> Iterator[Any]:
    for name, value in schema.items():
        if name in NAMED and isinstance(value, dict):
            yield from value.values()
        elif name in LISTED and isinstance(value, list):
            yield from value
        elif (name == "items" and isinstance(value, list)) or (name in SINGLE and isinstance(value, dict)):
            yield value


def _is_faulty(schema: Any, root: Json) -> bool:
    if not isinstance(schema, dict):
        return True
    if _lacks_items(schema) or isinstance(schema.get("items"), bool | list):
        return True
    return "$ref" in schema and _find(schema["$ref"], root) is None


def _lacks_items(schema: Json) -> bool:
    kind = schema.get("type")
    return (kind == "array" or (isinstance(kind, list) and "array" in kind)) and "items" not in schema


def _mend(schema: Any, root: Json, depth: int) -> Any:
    """Return a schema with all schemas within it completed."""
    if not isinstance(schema, dict):
        return {}
    if depth > MAX_DEPTH:
        return schema
    mended: Json = {}
    for name, value in schema.items():
        if name == "$ref" and _find(value, root) is None:
            continue
        if name in NAMED and isinstance(value, dict):
            value = {key: _mend(inner, root, depth + 1) for key, inner in value.items()}
        elif name in LISTED and isinstance(value, list):
            value = [_mend(inner, root, depth + 1) for inner in value]
        elif name == "items" and isinstance(value, list):
            value = {"anyOf": [_mend(inner, root, depth + 1) for inner in value]} if value else {}
        elif name == "items" or (name in SINGLE and isinstance(value, dict)):
            value = _mend(value, root, depth + 1)
        mended[name] = value
    if _lacks_items(mended):
        mended["items"] = {}
    return mended


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
