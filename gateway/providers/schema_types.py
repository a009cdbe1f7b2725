"""The types of a JSON Schema node: declared, inferred, or extended by null."""

from typing import Any

Schema = dict[str, Any]

NUMBER_WORDS = frozenset(("minimum", "maximum", "multipleOf"))
# The keywords of each type; keywords in no list belong to every type. The first type with a keyword of a schema without
# a declared type is its type, so the most reliable types are first.
WORDS_OF_TYPE = {
    "object": frozenset(("properties", "required", "additionalProperties", "patternProperties"))
    | {"minProperties", "maxProperties", "propertyOrdering"},
    "array": frozenset(("items", "prefixItems", "minItems", "maxItems", "uniqueItems")),
    "string": frozenset(("pattern", "minLength", "maxLength")),
    "number": NUMBER_WORDS,
    "integer": NUMBER_WORDS,
}
TYPED_WORDS = frozenset().union(*WORDS_OF_TYPE.values())
TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")
SIMPLE = ("string", "number", "boolean", "object")


def types_of(node: Schema) -> list[str]:
    """Return the types of a node, inferred from its keywords when it declares none; [] when no keyword implies a
    type."""
    kind = node.get("type")
    if isinstance(kind, list):
        declared = kind
    else:
        declared = [kind]
    known = [name.lower() for name in declared if isinstance(name, str) and name.lower() in TYPES]
    if known:
        return list(dict.fromkeys(known))
    listed = node.get("enum")
    if isinstance(listed, list) and listed:
        return list(dict.fromkeys(type_of(value) for value in listed))
    implied = "string" if "format" in node else ""
    kind = next((name for name, words in WORDS_OF_TYPE.items() if not words.isdisjoint(node)), implied)
    return [kind] if kind else []


def type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def with_null(schema: Schema) -> Schema:
    """Return a schema that also accepts null."""
    kind = schema.get("type")
    listed = schema.get("enum")
    if isinstance(listed, list) and None not in listed:
        widened = {**schema, "enum": [*listed, None]}
    else:
        widened = dict(schema)
    if isinstance(kind, str):
        return {**widened, "type": kind if kind == "null" else [kind, "null"]}
    if isinstance(kind, list):
        return {**widened, "type": kind if "null" in kind else [*kind, "null"]}
    if isinstance(schema.get("anyOf"), list):
        return {**widened, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if "const" in schema or "$ref" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    return widened


def look_up(root: Any, ref: str) -> Any:
    """Return the target of a local JSON pointer (RFC 6901); None when it does not exist."""
    if ref == "#":
        return root
    if not ref.startswith("#/"):
        return None
    node: Any = root
    for step in ref[2:].split("/"):
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and step in node:
            node = node[step]
        elif isinstance(node, list) and step.isdecimal() and len(step) < 10 and int(step) < len(node):
            node = node[int(step)]
        else:
            return None
    if isinstance(node, dict | bool):
        return node
    return None
