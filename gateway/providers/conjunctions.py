"""Several schemas that must all hold, as one schema: what it takes is never less than what all of them take."""

from collections.abc import Callable, Sequence
from typing import Any

from gateway.providers.grammars import ANNOTATIONS

Schema = dict[str, Any]

NUMERIC = {"integer", "number"}


def merge(schemas: Sequence[Schema], lost: Callable[[str], None]) -> Schema:
    """One schema for all of `schemas`. Of two constraints that cannot be joined the first stays, and `lost` is told
    the word: one alone takes more than both. Sub-schemas that several declare become an allOf of theirs."""
    used = [schema for schema in schemas if schema]
    if len(used) == 1:
        return dict(used[0])
    merged: Schema = {}
    for schema in used:
        for word, value in schema.items():
            if word not in merged:
                merged[word] = value
            elif word in JOINS:
                merged[word] = JOINS[word](merged[word], value)
            elif merged[word] != value and word not in ANNOTATIONS:
                lost(word)
    _open(merged, used)
    return merged


def _open(merged: Schema, schemas: Sequence[Schema]) -> None:
    """What one schema says of undeclared properties would hit those that only another declares."""
    bounded = [schema for schema in schemas if schema.keys() & {"properties", "additionalProperties"}]
    if len(bounded) < 2 or "additionalProperties" not in merged:
        return
    if not all(schema.get("additionalProperties") is False for schema in bounded):
        del merged["additionalProperties"]


def join_branches(base: Schema, branches: list[Schema]) -> Schema:
    """An object with what any branch declares, and required what all of them require."""
    properties = dict(base.get("properties") or {})
    for branch in branches:
        for name, schema in (branch.get("properties") or {}).items():
            known = properties.get(name, schema)
            properties[name] = schema if known == schema else {"anyOf": [known, schema]}
    asked = [set(branch.get("required") or ()) for branch in branches]
    always = set.intersection(*asked) if asked else set()
    required = list(dict.fromkeys([*(base.get("required") or ()), *sorted(always)]))
    joined = {**base, "properties": properties}
    return {**joined, "required": required} if required else joined


def join_types(one: Any, other: Any) -> Any:
    """The types that both name; an integer is a number too. Two that exclude each other leave the first."""
    mine, theirs = _listed(one), _listed(other)
    both = [kind for kind in mine if kind in theirs]
    if "integer" not in both and "integer" in {*mine, *theirs} and NUMERIC & set(mine) and NUMERIC & set(theirs):
        both.append("integer")
    if not both:
        return one
    return both[0] if len(both) == 1 else both


def join_properties(one: Any, other: Any) -> Any:
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one
    joined = dict(one)
    for name, schema in other.items():
        joined[name] = join_schemas(joined[name], schema) if name in joined else schema
    return joined


def join_schemas(one: Any, other: Any) -> Any:
    return one if one == other else {"allOf": [one, other]}


def join_required(one: Any, other: Any) -> Any:
    names = [*_listed(one), *_listed(other)]
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))


def join_enums(one: Any, other: Any) -> Any:
    """The values that both list; two lists without a common value leave the first."""
    return [value for value in _listed(one) if value in _listed(other)] or one


def _bound(choose: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def join(one: Any, other: Any) -> Any:
        return choose(one, other) if _is_number(one) and _is_number(other) else one

    return join


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


LOWER, UPPER = _bound(max), _bound(min)
JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "type": join_types,
    "properties": join_properties,
    "patternProperties": join_properties,
    "required": join_required,
    "enum": join_enums,
    "items": join_schemas,
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), LOWER),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), UPPER),
}
