"""Generates JSON values that satisfy a JSON Schema (drafts 7 to 2020-12, the keywords that tools and formats use).

The keywords `not`, `if` and `patternProperties` are ignored.
"""

from math import ceil, floor
from typing import Any

import orjson

from gateway.providers.sandbox.error_responses import refuse
from gateway.providers.sandbox.patterns import write_match

Schema = dict[str, Any]

LEAN_DEPTH = 6  # deeper objects only get required properties, so that a recursive schema ends
LEAN_NODES = 2_000
MOST_DEPTH = 60
MOST_NODES = 20_000
MOST_ITEMS = 1_000
MOST_CHARACTERS = 100_000
MOST_WRITTEN = 2_000_000  # characters of a complete value
MOST_STEPS = 200_000  # keywords and list entries that are visited

FORMATS = {
    "date-time": "2025-01-15T08:30:00Z",
    "date": "2025-01-15",
    "time": "08:30:00Z",
    "duration": "PT1H30M",
    "email": "person@example.com",
    "idn-email": "person@example.com",
    "hostname": "example.com",
    "idn-hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/page",
    "uri-reference": "/page",
    "iri": "https://example.com/page",
    "uuid": "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
    "json-pointer": "/name",
    "regex": "^a+$",
    "byte": "c2FuZGJveA==",
}
HINTS = {
    "object": ("properties", "required", "additionalProperties", "minProperties"),
    "array": ("items", "prefixItems", "minItems", "contains"),
    "string": ("minLength", "maxLength", "pattern", "format"),
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
    """Generates a value. `steps` counts visited keywords and entries, `written` counts characters."""

    def __init__(self, root: Schema | bool) -> None:
        self._root = root
        self._nodes = 0
        self._sizes: dict[int, int] = {}
        self.steps = 0
        self.written = 0

    def make(self, schema: Schema | bool, name: str, depth: int, turn: int) -> Any:
        """Return a value; `turn` is the index in an array, so that its items differ where possible."""
        self._nodes += 1
        if depth > MOST_DEPTH or self._nodes > MOST_NODES:
            raise refuse("The sandbox cannot generate a value for this schema: it is infinite or too large.")
        if schema is True:
            return self._write(f"sample {name}")
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
                return _number(flat, turn, True)
            case "number":
                return _number(flat, turn, False)
            case "boolean":
                return turn % 2 == 0
            case "null":
                return None
            case "string":
                if "pattern" in flat:
                    self._spend(len(flat["pattern"]))
                return self._write(_string(flat, name, turn))
            case other:
                raise refuse(f"The schema has an unknown type {str(other)[:60]!r}.")

    def _spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > MOST_STEPS:
            raise refuse("The sandbox cannot generate a value for this schema in a reasonable number of steps.")

    def _count(self, characters: int) -> None:
        self.written += characters
        if self.written > MOST_WRITTEN:
            raise refuse(f"The sandbox does not generate values of more than {MOST_WRITTEN:,} characters.")

    def _write(self, text: str) -> str:
        self._count(len(text))
        return text

    def _copy(self, value: Any) -> Any:
        """Return a value from the schema and count its size, because each copy makes the answer larger."""
        size = self._sizes.get(id(value))
        if size is None:
            size = self._sizes[id(value)] = len(orjson.dumps(value))
        self._count(size)
        return value

    def _lean(self, depth: int) -> bool:
        return depth >= LEAN_DEPTH or self._nodes > LEAN_NODES

    def _flatten(self, schema: Schema, depth: int) -> Schema:
        """Return the schema with references resolved, `allOf` merged and an alternative chosen."""
        flat = schema
        steps = 0
        while any(key in flat for key in ("$ref", "allOf", "anyOf", "oneOf")):
            steps += 1
            if steps > MOST_DEPTH:
                raise refuse("The schema contains an endless reference to itself.")
            rest = {key: value for key, value in flat.items() if key not in ("$ref", "allOf", "anyOf", "oneOf")}
            for part in self._parts(flat, depth):
                self._spend(_size(rest) + _size(part))
                rest = _merge(rest, part)
            flat = rest
        return flat

    def _parts(self, flat: Schema, depth: int) -> list[Schema]:
        if "$ref" in flat:
            parts = [self._follow(flat["$ref"])]
        else:
            parts = []
        parts.extend(flat.get("allOf", ()))
        for key in ("anyOf", "oneOf"):
            if flat.get(key):
                self._spend(len(flat[key]))
                parts.append(self._choose(flat[key], depth))
        return [part for part in parts if isinstance(part, dict)]

    def _choose(self, options: list[Any], depth: int) -> Any:
        """Return the first alternative that is not null. Below the lean depth, return a finite alternative: null or one
        without references."""
        usable = [option for option in options if option is not False]
        if not usable:
            raise refuse("The schema has no alternative that can be satisfied.")
        if self._lean(depth):
            return next((option for option in usable if _is_finite(option)), usable[0])
        return next((option for option in usable if not _is_null(option)), usable[0])

    def _follow(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise refuse("The sandbox only resolves references within the schema ('#/…').")
        self._spend(1 + len(reference) // 16)
        target: Any = self._root
        for step in reference[1:].split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and key.isdigit() and int(key) < len(target):
                target = target[int(key)]
            elif isinstance(target, dict):
                target = target.get(key)
            else:
                target = None
        if target is None:
            raise refuse(f"The schema's reference {reference[:100]!r} has no target.")
        return target

    def _object(self, flat: Schema, depth: int) -> dict[str, Any]:
        properties: dict[str, Schema | bool] = flat.get("properties") or {}
        required = flat.get("required") or []
        self._spend(len(properties) + len(required))
        needed = dict.fromkeys(required)
        if self._lean(depth):
            names = list(required)
        else:
            names = list(dict.fromkeys([*properties, *required]))
        most = flat.get("maxProperties", len(names))
        chosen = set([*needed, *(name for name in names if name not in needed)][: max(most, len(needed))])
        self._count(sum(map(len, chosen)))
        others: Schema | bool = flat.get("additionalProperties", True)
        made = {
            name: self.make(properties.get(name, others), name, depth + 1, 0)
            for name in names
            if name in chosen and properties.get(name, others) is not False
        }
        least = min(flat.get("minProperties", 0), MOST_ITEMS)
        while len(made) < least and others is not False:
            extra = f"key{len(made) + 1}"
            made[extra] = self.make(others, extra, depth + 1, 0)
        return made

    def _array(self, flat: Schema, name: str, depth: int) -> list[Any]:
        first = list(flat.get("prefixItems") or ())
        items = flat.get("items", True)
        if isinstance(items, list):
            first = items
            items = flat.get("additionalItems", True)
        least = flat.get("minItems", 0)
        wanted = max(least, len(first), 0 if self._lean(depth) else 1)
        wanted = min(wanted, flat.get("maxItems", wanted), len(first) if items is False else wanted)
        if wanted > MOST_ITEMS:
            raise refuse(f"The sandbox does not generate arrays of more than {MOST_ITEMS} items.")
        made = [self.make(first[at] if at < len(first) else items, name, depth + 1, at) for at in range(wanted)]
        if "contains" in flat:
            made[-1:] = [self.make(flat["contains"], name, depth + 1, 0)]
        return made


def _size(schema: Schema) -> int:
    """Return the number of steps that merging the schema costs."""
    return sum(1 + (len(value) if isinstance(value, dict | list) else 0) for value in schema.values())


def _kind(flat: Schema) -> Any:
    kind = flat.get("type")
    if isinstance(kind, list):
        return next((name for name in kind if name != "null"), "null")
    if kind is not None:
        return kind
    return next((name for name, keys in HINTS.items() if any(key in flat for key in keys)), "string")


def _is_null(option: Any) -> bool:
    return isinstance(option, dict) and option.get("type") == "null"


def _is_finite(option: Any) -> bool:
    return not isinstance(option, dict) or not any(key in option for key in ("$ref", "properties", "items", "anyOf"))


def _merge(left: Schema, right: Schema) -> Schema:
    """Return a schema that satisfies both, with the tighter of two limits."""
    merged = {**left, **right}
    if "properties" in left and "properties" in right:
        merged["properties"] = {**left["properties"], **right["properties"]}
    if "required" in left and "required" in right:
        merged["required"] = list(dict.fromkeys([*left["required"], *right["required"]]))
    for key in set(left) & set(right):
        if key.startswith(("min", "exclusiveMin")):
            merged[key] = max(left[key], right[key])
        elif key.startswith(("max", "exclusiveMax")):
            merged[key] = min(left[key], right[key])
    return merged


def _number(flat: Schema, turn: int, whole: bool) -> int | float:
    step = flat.get("multipleOf") or (1 if whole else 0)
    low, high = _limits(flat, 1 if whole else 0.5)
    value = 1 if whole else 1.5
    if low is not None and value < low:
        value = low
    if high is not None and value > high:
        value = high
    value += turn if high is None or value + turn <= high else 0
    if step:
        value = _on_grid(value, step, low, high)
    if (low is not None and value < low) or (high is not None and value > high):
        raise refuse("The schema's limits exclude every number.")
    if whole:
        return int(value)
    return value


def _limits(flat: Schema, step: float) -> tuple[float | None, float | None]:
    """Return inclusive limits. An exclusive limit is moved inwards, at most by a quarter of the range."""
    lows = [flat[key] for key in ("minimum", "exclusiveMinimum") if _is_number(flat.get(key))]
    highs = [flat[key] for key in ("maximum", "exclusiveMaximum") if _is_number(flat.get(key))]
    low = max(lows, default=None)
    high = min(highs, default=None)
    if step == 1 or low is None or high is None:
        inset = step
    else:
        inset = min(step, (high - low) / 4)
    if low is not None and low == flat.get("exclusiveMinimum"):
        low += inset
    if high is not None and high == flat.get("exclusiveMaximum"):
        high -= inset
    return low, high


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _on_grid(value: float, step: float, low: float | None, high: float | None) -> float:
    below = floor(value / step) * step
    if low is None or below >= low:
        return below
    return ceil(value / step) * step


def _string(flat: Schema, name: str, turn: int) -> str:
    least = flat.get("minLength", 0)
    most = flat.get("maxLength", MOST_CHARACTERS)
    if least > MOST_CHARACTERS:
        raise refuse(f"The sandbox does not generate strings longer than {MOST_CHARACTERS} characters.")
    if "pattern" in flat:
        return write_match(flat["pattern"], least)
    if flat.get("format") in FORMATS:
        return FORMATS[flat["format"]]
    if not turn:
        text = f"sample {name}"
    else:
        text = f"sample {name} {turn + 1}"
    if len(text) > most:
        text = str(turn + 1).rjust(min(most, 1 + len(str(turn))), "s")[:most]
    return text.ljust(least, ".")
