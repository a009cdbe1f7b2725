"""The types of a JSON Schema node: declared, inferred, or extended by null."""

from typing import Any

Schema = dict[str, Any]

# The keywords of each type; keywords in no list belong to every type.
WORDS_OF_TYPE = {
    "string": frozenset(("minLength", "maxLength", "pattern", "enum")),
    "number": frozenset(("minimum", "maximum")),
    "integer": frozenset(("minimum", "maximum")),
    "array": frozenset(("items", "minItems", "maxItems")),
    "object": frozenset(
        ("properties", "required", "minProperties", "maxProperties", "propertyOrdering", "additionalProperties")
    ),
}
TYPED_WORDS = frozenset().union(*WORDS_OF_TYPE.values())
TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")
SIMPLE = ("string", "number", "boolean", "object")
# Keywords that imply the type of a schema without a declared type, the most reliable first.
IMPLYING = (
    ("object", ("properties", "required", "additionalProperties", "patternProperties", "minProperties")),
    ("array", ("items", "prefixItems", "minItems", "maxItems", "uniqueItems")),
    ("string", ("pattern", "minLength", "maxLength", "format")),
    ("number", ("minimum", "maximum", "multipleOf")),
)


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
    return next(([name] for name, words in IMPLYING if any(word in node for word in words)), [])


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
