"""Generates JSON values for the JSON Schemas that tools and response formats use (drafts 7 to 2020-12).

A string takes its `examples` and `default`; one with a pattern takes the first entry of its `examples`. The keywords
`not`, `if`, `contains`, `patternProperties`, `minProperties` and `maxProperties` are ignored.
"""

from math import ceil, floor
from typing import Any

import orjson

from gateway.providers.sandbox.response import refuse

Schema = dict[str, Any]

LEAN_DEPTH = 6  # deeper objects only get required properties, so that a recursive schema ends
LEAN_WORK = 100_000
MAX_DEPTH = 60
MAX_CHARACTERS = 100_000  # of one string
MAX_WORK = 1_000_000  # keywords that are visited and characters that are written, for one value
KEYWORD_WORK = 20  # a visited keyword takes as long as this many written characters
COMPOSED = ("$ref", "allOf", "anyOf", "oneOf")

FORMATS = {
    "date-time": "2025-01-15T08:30:00Z",
    "date": "2025-01-15",
    "time": "08:30:00Z",
    "duration": "PT1H30M",
    "email": "person@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/page",
    "uuid": "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
}
HINTS = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "prefixItems", "minItems"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}


def write_instance(schema: Schema | bool | None, name: str = "value") -> Any:
    """Return a value of the schema; {} for None. Strings contain `name`.

    InvalidRequest when the schema cannot be satisfied, contains an unresolved reference or needs too large a value.
    """
    if schema is None:
        return {}
    try:
        return InstanceGenerator(schema).make(schema, name, 0, 0)
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        # The schema is untrusted JSON: any keyword may have a value of the wrong type.
        raise refuse("The schema is not a valid JSON Schema: a keyword has a value of the wrong type.") from error


class InstanceGenerator:
    """Generates a value on the event loop, in at most some 20 ms. `work` counts visited keywords and written
    characters."""

    def __init__(self, root: Schema | bool) -> None:
        self._root = root
        self.work = 0

    def make(self, schema: Schema | bool, name: str, depth: int, turn: int) -> Any:
        """Return a value; `turn` is the index in an array, so that its items differ where possible."""
        self._spend(1)
        if depth > MAX_DEPTH:
            raise refuse("The sandbox cannot generate a value for this schema: it is infinite.")
        if schema is True:
            schema = {}
        if not isinstance(schema, dict):
            raise refuse("The sandbox cannot generate a value for a schema that rejects every value.")
        flat = self._flatten(schema, depth)
        if "const" in flat:
            return self._copy(flat["const"])
        if flat.get("enum"):
            return self._copy(flat["enum"][turn % len(flat["enum"])])
        return self._typed(flat, name, depth, turn)

    def _typed(self, flat: Schema, name: str, depth: int, turn: int) -> Any:
        match _kind(flat):
            case "object":
                return self._object(flat, depth)
            case "array":
                return self._array(flat, name, depth)
            case "integer":
                return int(_number(flat, turn, flat.get("multipleOf") or 1))
            case "number":
                return _number(flat, turn, flat.get("multipleOf") or _step_between(flat))
            case "boolean":
                return turn % 2 == 0
            case "null":
                return None
            case "string":
                return self._copy(_string(flat, name, turn))
            case other:
                raise refuse(f"The schema has an unknown type {str(other)[:60]!r}.")

    def _spend(self, keywords: int) -> None:
        self._write(KEYWORD_WORK * keywords)

    def _write(self, characters: int) -> None:
        self.work += characters
        if self.work > MAX_WORK:
            raise refuse("The sandbox cannot generate a value for this schema: it is too large.")

    def _copy(self, value: Any) -> Any:
        """Return a value and count its size, because each copy makes the answer larger."""
        self._write(len(orjson.dumps(value)))
        return value

    def _lean(self, depth: int) -> bool:
        return depth >= LEAN_DEPTH or self.work > LEAN_WORK

    def _flatten(self, schema: Schema, depth: int) -> Schema:
        """Return the schema with references resolved, `allOf` merged and an alternative chosen."""
        flat = schema
        for _ in range(MAX_DEPTH):
            if not any(key in flat for key in COMPOSED):
                return flat
            merged = {key: value for key, value in flat.items() if key not in COMPOSED}
            for part in self._parts(flat, depth):
                self._spend(_size(merged) + _size(part))
                merged = _merge(merged, part)
            flat = merged
        raise refuse("The schema contains an endless reference to itself.")

    def _parts(self, flat: Schema, depth: int) -> list[Schema]:
        parts = list(flat.get("allOf", ()))
        if "$ref" in flat:
            parts.insert(0, self._follow(flat["$ref"]))
        for key in ("anyOf", "oneOf"):
            if flat.get(key):
                self._spend(len(flat[key]))
                parts.append(self._choose(flat[key], depth))
        return [part for part in parts if isinstance(part, dict)]

    def _choose(self, options: list[Any], depth: int) -> Any:
        """Return the first alternative that is not null. Below the lean depth, return a finite alternative: null or one
        without references."""
        possible = [option for option in options if option is not False]
        if not possible:
            raise refuse("The schema has no alternative that can be satisfied.")
        fits = _is_finite if self._lean(depth) else _is_value
        return next((option for option in possible if fits(option)), possible[0])

    def _follow(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise refuse("The sandbox only resolves references within the schema ('#/…').")
        self._spend(1 + reference.count("/"))
        self._write(len(reference))
        target: Any = self._root
        for step in reference[1:].split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            target = target[int(key)] if isinstance(target, list) else target.get(key)
        if target is None:
            raise refuse(f"The schema's reference {reference[:100]!r} has no target.")
        return target

    def _object(self, flat: Schema, depth: int) -> dict[str, Any]:
        properties: dict[str, Schema | bool] = flat.get("properties") or {}
        required = flat.get("required") or []
        names = dict.fromkeys(required)
        if not self._lean(depth):
            names = dict.fromkeys((*properties, *required))
        self._spend(len(properties) + len(names))
        self._write(sum(map(len, names)))
        other: Schema | bool = flat.get("additionalProperties", True)
        schemas = {name: properties.get(name, other) for name in names}
        needed = set(required)
        return {
            name: self.make(schema, name, depth + 1, 0)
            for name, schema in schemas.items()
            if schema is not False or name in needed
        }

    def _array(self, flat: Schema, name: str, depth: int) -> list[Any]:
        first = list(flat.get("prefixItems") or ())
        items = flat.get("items", True)
        if isinstance(items, list):
            first = items
            items = flat.get("additionalItems", True)
        length = max(flat.get("minItems", 0), len(first))
        if not length and items is not False and not self._lean(depth):
            length = 1
        length = min(length, flat.get("maxItems", length))
        self._spend(length)
        schemas = [*first, *[items] * (length - len(first))][:length]
        return [self.make(schema, name, depth + 1, place) for place, schema in enumerate(schemas)]


def _size(schema: Schema) -> int:
    """Return the work of merging the schema."""
    return sum(1 + len(value) if isinstance(value, dict | list) else 1 for value in schema.values())


def _kind(flat: Schema) -> Any:
    kind = flat.get("type")
    if isinstance(kind, list):
        return next((name for name in kind if name != "null"), "null")
    if kind is not None:
        return kind
    return next((name for name, keys in HINTS.items() if any(key in flat for key in keys)), "string")


def _is_value(option: Any) -> bool:
    return not isinstance(option, dict) or option.get("type") != "null"


def _is_finite(option: Any) -> bool:
    return not isinstance(option, dict) or not any(key in option for key in ("properties", "items", *COMPOSED))


def _merge(left: Schema, right: Schema) -> Schema:
    """Return a schema that satisfies both, with the tighter of two limits."""
    merged = {**left, **right}
    if "properties" in left and "properties" in right:
        merged["properties"] = {**left["properties"], **right["properties"]}
    if "required" in left and "required" in right:
        merged["required"] = [*left["required"], *right["required"]]
    for key in left.keys() & right.keys():
        if key.startswith(("min", "exclusiveMin")):
            merged[key] = max(left[key], right[key])
        elif key.startswith(("max", "exclusiveMax")):
            merged[key] = min(left[key], right[key])
    return merged


def _bounds(flat: Schema) -> tuple[float | None, float | None]:
    """Return the lowest and the highest number, without regard to which of them are excluded."""
    lowest = [flat[key] for key in ("minimum", "exclusiveMinimum") if key in flat]
    highest = [flat[key] for key in ("maximum", "exclusiveMaximum") if key in flat]
    return max(lowest, default=None), min(highest, default=None)


def _step_between(flat: Schema) -> float:
    """Return a step that has a multiple between the bounds: one half, or a fourth of their distance."""
    low, high = _bounds(flat)
    if low is None or high is None or low == high:
        return 0.5
    return min(0.5, (high - low) / 4)


def _number(flat: Schema, turn: int, step: float) -> float:
    """Return a multiple of `step` within the bounds, 1 if possible."""
    low, high = _bounds(flat)
    value = ceil(1 / step) * step
    if low is not None and value <= low:
        value = ceil(low / step) * step
        if value == flat.get("exclusiveMinimum"):
            value += step
    if high is not None and value >= high:
        value = floor(high / step) * step
        if value == flat.get("exclusiveMaximum"):
            value -= step
    if high is None or value + turn * step < high:
        value += turn * step
    if low is not None and (value < low or value == flat.get("exclusiveMinimum")):
        raise refuse("The schema's limits exclude every number.")
    return value


def _stated(flat: Schema) -> list[Any]:
    """Return the values that the schema itself names, without repetition."""
    examples = flat.get("examples")
    values = list(examples) if isinstance(examples, list) else []
    if "default" in flat:
        values.append(flat["default"])
    return [value for place, value in enumerate(values) if value not in values[:place]]


def _string(flat: Schema, name: str, turn: int) -> str:
    if "pattern" in flat:
        if flat.get("examples"):
            return str(flat["examples"][0])
        raise refuse("The sandbox does not generate strings for a pattern. Add `examples` to the schema of the string.")
    if flat.get("format") in FORMATS:
        return FORMATS[flat["format"]]
    minimum = flat.get("minLength", 0)
    if minimum > MAX_CHARACTERS:
        raise refuse(f"The sandbox does not generate strings longer than {MAX_CHARACTERS} characters.")
    maximum = flat.get("maxLength", MAX_CHARACTERS)
    stated = [text for text in _stated(flat) if isinstance(text, str) and minimum <= len(text) <= maximum]
    if turn < len(stated):
        return stated[turn]
    text = f"sample {name}"
    if turn:
        text = f"{text} {turn + 1}"
    if len(text) > maximum:
        text = str(turn + 1)[:maximum]
    return text.ljust(minimum, ".")
