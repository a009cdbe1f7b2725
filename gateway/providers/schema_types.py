"""The types of a JSON Schema node: declared, inferred, or extended by null."""

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from gateway.providers.grammars import ANNOTATIONS

# Merges the schemas of an allOf into one schema, which accepts at least every value that all of them accept.

Schema = dict[str, Any]

NUMERIC = ("integer", "number")
MAX_TYPES = 7  # JSON Schema has seven types; a longer list contains repetitions


def merge(schemas: Sequence[Schema], lost: Callable[[str], None]) -> Schema:
    """Return one schema for all of `schemas`. When two constraints cannot be merged, the first is kept (which accepts
    more than both) and `lost` is called with the keyword. Sub-schemas that several schemas declare become an allOf."""
    used = [schema for schema in schemas if schema]
    if len(used) == 1:
        return dict(used[0])
    merged: Schema = {}
    several: dict[str, list[Any]] = {}
    for schema in used:
        for word, value in schema.items():
            if word not in merged:
                merged[word] = value
            elif word in JOINS:
                several.setdefault(word, [merged[word]]).append(value)
            elif word not in ANNOTATIONS and merged[word] != value:
                lost(word)
    for word, values in several.items():
        # Merging all values at once takes linear time; pairwise merging would copy the merged part repeatedly.
        merged[word] = JOINS[word](values)
    _open(merged, used)
    return merged


def _open(merged: Schema, schemas: Sequence[Schema]) -> None:
    """Remove `additionalProperties` where it would also reject properties that only another schema declares."""
    bounded = [schema for schema in schemas if schema.keys() & {"properties", "additionalProperties"}]
    if len(bounded) < 2 or "additionalProperties" not in merged:
        return
    if not all(schema.get("additionalProperties") is False for schema in bounded):
        del merged["additionalProperties"]


def join_branches(base: Schema, branches: list[Schema]) -> Schema:
    """Return an object with the properties of all branches. A property is required if all branches require it."""
    declared: dict[str, list[Any]] = {name: [schema] for name, schema in (base.get("properties") or {}).items()}
    for branch in branches:
        for name, schema in (branch.get("properties") or {}).items():
            declared.setdefault(name, []).append(schema)
    properties = {name: _any_of(schemas) for name, schemas in declared.items()}
    required_by_branch = [set(branch.get("required") or ()) for branch in branches]
    always = set.intersection(*required_by_branch) if required_by_branch else set()
    required = list(dict.fromkeys([*(base.get("required") or ()), *sorted(always)]))
    joined = {**base, "properties": properties}
    if required:
        return {**joined, "required": required}
    return joined


def _any_of(schemas: list[Any]) -> Any:
    different = distinct(schemas)
    if len(different) == 1:
        return different[0]
    return {"anyOf": different}


def distinct(values: Sequence[Any]) -> list[Any]:
    """Return the distinct values in order; 1 and true are different."""
    if len(values) < 2:
        return list(values)
    first: dict[Any, Any] = {}
    for value in values:
        first.setdefault(_key_of(value), value)
    return list(first.values())


def _key_of(value: Any) -> Any:
    """Return a key that equal values share. A value that is not JSON is only equal to itself."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return id(value)


def join_types(values: list[Any]) -> Any:
    """Return the types that all lists contain; an integer is also a number. Disjoint lists give the
    first."""
    joined = values[0]
    for other in values[1:]:
        joined = _join_types(joined, other)
    return joined


def _join_types(first: Any, other: Any) -> Any:
    mine = _listed(first)[:MAX_TYPES]
    theirs = _listed(other)[:MAX_TYPES]
    both = [kind for kind in mine if kind in theirs]
    if "integer" not in both and "integer" in [*mine, *theirs] and _numeric(mine) and _numeric(theirs):
        both.append("integer")
    if not both:
        return first
    if len(both) == 1:
        return both[0]
    return both


def _numeric(kinds: list[Any]) -> bool:
    return any(kind in kinds for kind in NUMERIC)


def join_properties(values: list[Any]) -> Any:
    if not isinstance(values[0], dict):
        return values[0]
    declared: dict[str, list[Any]] = {}
    for value in values:
        for name, schema in value.items() if isinstance(value, dict) else ():
            declared.setdefault(name, []).append(schema)
    return {name: join_schemas(schemas) for name, schemas in declared.items()}


def join_schemas(values: list[Any]) -> Any:
    different = distinct(values)
    if len(different) == 1:
        return different[0]
    return {"allOf": different}


def join_required(values: list[Any]) -> Any:
    return list(dict.fromkeys(name for value in values for name in _listed(value) if isinstance(name, str)))


def join_enums(values: list[Any]) -> Any:
    """Return the values that all lists contain. Lists without a common value give the first."""
    joined = values[0]
    for other in values[1:]:
        known = {_key_of(value) for value in _listed(other)}
        joined = [value for value in _listed(joined) if _key_of(value) in known] or joined
    return joined


def _bound(choose: Callable[[Any, Any], Any]) -> Callable[[list[Any]], Any]:
    def join(values: list[Any]) -> Any:
        joined = values[0]
        for other in values[1:]:
            if _is_number(joined) and _is_number(other):
                joined = choose(joined, other)
        return joined

    return join


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _listed(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return [value]


LOWER = _bound(max)
UPPER = _bound(min)
JOINS: dict[str, Callable[[list[Any]], Any]] = {
    "type": join_types,
    "properties": join_properties,
    "patternProperties": join_properties,
    "required": join_required,
    "enum": join_enums,
    "items": join_schemas,
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), LOWER),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), UPPER),
}


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
    declared = kind if isinstance(kind, list) else [kind]
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
    widened = dict(schema)
    if isinstance(listed, list) and None not in listed:
        widened["enum"] = [*listed, None]
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
        elif isinstance(node, list) and step.isascii() and step.isdigit() and len(step) < 10 and int(step) < len(node):
            node = node[int(step)]
        else:
            return None
    if isinstance(node, dict | bool):
        return node
    return None
