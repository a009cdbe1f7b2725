"""The sample schemas, generated instances of them, and the rules of providers' schema validators."""

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
from google import genai
from pydantic import ValidationError

SAMPLES = Path(__file__).resolve().parent.parent / "samples" / "schemas"
TEXTS = {
    "date-time": "2026-01-15T08:30:00Z",
    "date": "2026-01-15",
    "time": "08:30:00Z",
    "email": "a@example.com",
    "uri": "https://example.com/a",
    "uuid": "0f8fad5b-d9cb-469f-a165-70867728950e",
    "ipv4": "192.0.2.1",
}
CANDIDATES = ("abcdefgh", "a", "1", "a1", "A1", "12345678", "abc-def", "/a", "*", "arn:aws:iam::123456789012:role/a")


def load_schemas() -> list[tuple[str, dict[str, Any]]]:
    """Return every sample as (file/name, schema)."""
    found = []
    for path in sorted(SAMPLES.glob("*.json")):
        found += [(f"{path.stem}/{entry['name']}", entry["schema"]) for entry in json.loads(path.read_text())]
    return found


def accepts(schema: dict[str, Any], instance: Any) -> bool:
    return check(schema)(instance)


def check(schema: dict[str, Any]) -> Callable[[Any], bool]:
    """Return a function that checks whether an instance is valid."""
    # Cached, because many grammars return the same schema.
    return _compile(json.dumps(schema))


@cache
def _compile(text: str) -> Callable[[Any], bool]:
    readable = {key: value for key, value in _without_foreign_patterns(json.loads(text)).items() if key != "$schema"}
    return jsonschema_rs.Draft7Validator(readable, validate_formats=False).is_valid


def _without_foreign_patterns(schema: Any) -> Any:
    """Return the schema without patterns in other languages' regular expression syntax."""
    if isinstance(schema, list):
        return [_without_foreign_patterns(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {keyword: _without_foreign_patterns(value) for keyword, value in schema.items()}
    if isinstance(kept.get("pattern"), str) and not _readable(kept["pattern"]):
        del kept["pattern"]
    return kept


def _readable(pattern: str) -> bool:
    try:
        re.compile(pattern.replace("$", r"\Z"))
    except re.error:
        return False
    return True


def instances_of(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return objects that the schema accepts: with required properties, with all properties, with each branch of
    unions."""
    return json.loads(_instances_of(json.dumps(schema)))


@cache
def _instances_of(text: str) -> str:
    schema = _without_foreign_patterns(json.loads(text))
    valid = check(schema)
    instances = [_make(schema, schema, full, pick, 0) for full in (False, True) for pick in (0, 1, 2)]
    objects = [value for value in instances if isinstance(value, dict)]
    return json.dumps([value for place, value in enumerate(objects) if value not in objects[:place] and valid(value)])


def _make(schema: Any, root: dict[str, Any], full: bool, pick: int, depth: int) -> Any:
    if not isinstance(schema, dict) or depth > 6:
        return "x"
    if "$ref" in schema:
        target: Any = root
        for step in schema["$ref"][2:].split("/") if len(schema["$ref"]) > 2 else ():
            target = target[step.replace("~1", "/").replace("~0", "~")]
        return _make(target, root, full and depth < 4, pick, depth + 1)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][pick % len(schema["enum"])]
    for keyword in ("anyOf", "oneOf", "allOf"):
        if schema.get(keyword):
            instance = _make(schema[keyword][pick % len(schema[keyword])], root, full, pick, depth + 1)
            own = _make_typed(schema, root, full, pick, depth) if "properties" in schema else {}
            return {**own, **instance} if isinstance(instance, dict) and isinstance(own, dict) else instance
    return _make_typed(schema, root, full, pick, depth)


def _make_typed(schema: dict[str, Any], root: dict[str, Any], full: bool, pick: int, depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[pick % len(kind)] if isinstance(kind, list) else kind
    if kind == "object":
        return _make_object(schema, root, full, pick, depth)
    if kind == "array":
        items = schema.get("items", {})
        count = max(schema.get("minItems", 0), 1 if full and depth < 4 else 0)
        members = items if isinstance(items, list) else schema.get("prefixItems") or [items] * count
        return [_make(member, root, full, pick + place, depth + 1) for place, member in enumerate(members)]
    if kind in ("integer", "number"):
        low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
        return int(low) + (1 if "exclusiveMinimum" in schema else 0)
    return {"boolean": pick == 1, "null": None}.get(kind, _text(schema))


def _make_object(schema: dict[str, Any], root: dict[str, Any], full: bool, pick: int, depth: int) -> dict[str, Any]:
    declared = schema.get("properties") or {}
    names = (
        list(declared) if full and depth < 4 else [name for name in schema.get("required") or () if name in declared]
    )
    instance = {name: _make(declared[name], root, full, pick, depth + 1) for name in names}
    extra = schema.get("additionalProperties")
    if full and isinstance(extra, dict) and depth < 4:
        instance["extra"] = _make(extra, root, full, pick, depth + 1)
    return instance


def _text(schema: dict[str, Any]) -> str:
    if schema.get("format") in TEXTS:
        return TEXTS[schema["format"]]
    low, high = schema.get("minLength", 0), schema.get("maxLength", 10**6)
    fitting = [text for text in CANDIDATES if re.search(schema.get("pattern", ""), text) and low <= len(text) <= high]
    return fitting[0] if fitting else "a" * low


def google_complaints(schema: dict[str, Any]) -> list[str]:
    """Return the errors of the Gemini API's validator for a Schema: unknown keywords, and rules that types do not
    express."""
    try:
        genai.types.Schema.model_validate(schema)
    except ValidationError as error:
        return [str(error)]
    return list(_google_rules(schema, "parameters"))


def _google_rules(schema: dict[str, Any], path: str) -> Iterator[str]:
    yield from _google_node_rules(schema, path)
    for name, inner in (schema.get("properties") or {}).items():
        yield from _google_rules(inner, f"{path}.properties[{name}]")
    if "items" in schema:
        yield from _google_rules(schema["items"], f"{path}.items")
    for place, inner in enumerate(schema.get("anyOf", ())):
        yield from _google_rules(inner, f"{path}.any_of[{place}]")


def _google_node_rules(schema: dict[str, Any], path: str) -> Iterator[str]:
    kind = schema.get("type")
    if "anyOf" in schema and schema.keys() - {"anyOf"}:
        yield f"{path}: when using any_of, it must be the only field set"
    if "anyOf" not in schema and kind not in genai.types.Type.__members__:
        yield f"{path}: schema didn't specify the schema type field"
    for keyword, owner in (("properties", "OBJECT"), ("items", "ARRAY"), ("enum", "STRING"), ("required", "OBJECT")):
        if keyword in schema and kind != owner:
            yield f"{path}.{keyword}: only allowed for {owner} type"
    if kind == "ARRAY" and "items" not in schema:
        yield f"{path}.items: missing field"
    if kind == "STRING" and schema.get("format", "enum") not in ("enum", "date-time"):
        yield f"{path}.format: only 'enum' and 'date-time' are supported for STRING type"
    if not all(isinstance(value, str) and value for value in schema.get("enum", ())):
        yield f"{path}.enum: cannot be empty"
    for name in schema.get("required", ()):
        if name not in schema.get("properties", {}):
            yield f"{path}.required: property is not defined: {name}"


def google_as_json(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema that is equivalent to a Google Schema."""
    plain = {keyword: value for keyword, value in schema.items() if keyword != "nullable"}
    if "type" in plain:
        plain["type"] = plain["type"].lower()
    if "properties" in plain:
        plain["properties"] = {name: google_as_json(inner) for name, inner in plain["properties"].items()}
    if "items" in plain:
        plain["items"] = google_as_json(plain["items"])
    if "anyOf" in plain:
        plain["anyOf"] = [google_as_json(inner) for inner in plain["anyOf"]]
    return {"anyOf": [plain, {"type": "null"}]} if schema.get("nullable") else plain


def keywords_of(schema: Any, keywords: set[str] | None = None) -> set[str]:
    """Return every keyword at every depth, without the names of properties."""
    found = set() if keywords is None else keywords
    if isinstance(schema, dict):
        for keyword, value in schema.items():
            found.add(keyword)
            if keyword in ("properties", "$defs", "definitions", "patternProperties"):
                for inner in value.values():
                    keywords_of(inner, found)
            elif keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
                for inner in value:
                    keywords_of(inner, found)
            elif keyword in ("items", "additionalProperties", "not", "propertyNames"):
                keywords_of(value, found)
    return found
