"""Response healing: extraction of the JSON that a model intended from the text that it wrote."""

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn, TypeGuard

from msgspec import Struct

from gateway.neutral.chat import ResponseFormat
from gateway.neutral.json_repair import Unrepairable, repair
from gateway.runtime.threads import compute

# Check whether a JSON value conforms to a JSON Schema.
#
# Schemas come from callers. They are interpreted and never compiled to code, references resolve only within the
# schema, and regular expressions (`pattern`, `patternProperties`) are not run, because a single one could block a
# worker.

Schema = dict[str, Any] | bool
INDEX = re.compile(r"[0-9]{1,9}")
MAX_STEPS = 100_000  # visited nodes of the value and the schema, and entries of lists


class Undecided(Exception):
    """The schema is too deep or has a circular or unresolvable reference."""


def conforms(value: Any, schema: Any) -> bool:
    """Return whether `value` conforms to `schema` (the keywords of drafts 4 to 2020-12 that structured outputs
    support).

    Return False if the schema itself cannot be evaluated.
    """
    try:
        return _Check(schema).fits(value, schema, ())
    except (Undecided, RecursionError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError):
        # The exceptions after the second one come from keywords of the schema that have values of a wrong type.
        return False


class _Check:
    """One evaluation. `steps` counts the work done. Lists of the schema are read once for all values."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self.steps = 0
        self._targets: dict[str, Any] = {}
        self._listed: dict[tuple[str, int], frozenset[Any]] = {}

    def fits(self, value: Any, schema: Any, via: tuple[str, ...]) -> bool:
        """Check one value. `via` holds the references followed at this value, to detect cycles."""
        self._spend(1)
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise Undecided
        ref = schema.get("$ref")
        if isinstance(ref, str):
            if ref in via:
                raise Undecided
            if not self.fits(value, self._target(ref), (*via, ref)):
                return False
        return (
            self._fits_type(value, schema)
            and self._fits_value(value, schema)
            and self._fits_combined(value, schema, via)
            and self._fits_inside(value, schema)
        )

    def _spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise Undecided

    def _target(self, ref: str) -> Any:
        if ref not in self._targets:
            self._targets[ref] = self._look_up(ref)
        return self._targets[ref]

    def _look_up(self, ref: str) -> Any:
        """Return the part of the schema that a reference points to (a JSON Pointer in fragment form, RFC 6901)."""
        if not ref.startswith("#"):
            raise Undecided
        place = self._root
        for step in ref[1:].lstrip("/").split("/") if ref != "#" else ():
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(place, dict) and name in place:
                place = place[name]
            elif isinstance(place, list) and INDEX.fullmatch(name) and int(name) < len(place):
                place = place[int(name)]
            else:
                raise Undecided
        return place

    def _fits_type(self, value: Any, schema: dict[str, Any]) -> bool:
        kinds = schema.get("type")
        if kinds is None:
            return True
        listed = kinds if isinstance(kinds, list) else [kinds]
        self._spend(len(listed))
        if any(not isinstance(kind, str) or kind not in TYPE_NAMES for kind in listed):
            raise Undecided
        return any(_has_type(value, kind) for kind in listed)

    def _fits_value(self, value: Any, schema: dict[str, Any]) -> bool:
        if "const" in schema and not self._is_listed(value, schema, "const"):
            return False
        if "enum" in schema and not self._is_listed(value, schema, "enum"):
            return False
        if isinstance(value, str):
            return _in_range(len(value), schema, "minLength", "maxLength")
        return not _is_number(value) or _fits_number(value, schema)

    def _is_listed(self, value: Any, schema: dict[str, Any], word: str) -> bool:
        known = self._listed.get((word, id(schema)))
        if known is None:
            listed = schema["enum"] if word == "enum" else (schema["const"],)
            known = self._listed[word, id(schema)] = frozenset([self._key(item) for item in listed])
        return self._key(value) in known

    def _key(self, value: Any) -> Any:
        """Return a key that is equal for values that are equal in JSON: true differs from 1, and 1 equals 1.0."""
        self._spend(1)
        if isinstance(value, bool):
            return "bool", value
        if isinstance(value, list):
            return "list", tuple([self._key(item) for item in value])
        if isinstance(value, dict):
            return "dict", frozenset([(name, self._key(member)) for name, member in value.items()])
        return value

    def _fits_combined(self, value: Any, schema: dict[str, Any], via: tuple[str, ...]) -> bool:
        for part in schema.get("allOf", ()):
            if not self.fits(value, part, via):
                return False
        if "anyOf" in schema and not any(self.fits(value, part, via) for part in schema["anyOf"]):
            return False
        if "oneOf" in schema and sum(self.fits(value, part, via) for part in schema["oneOf"]) != 1:
            return False
        if "not" in schema and self.fits(value, schema["not"], via):
            return False
        if "if" in schema:
            return self.fits(value, schema.get("then" if self.fits(value, schema["if"], via) else "else", True), via)
        return True

    def _fits_inside(self, value: Any, schema: dict[str, Any]) -> bool:
        if isinstance(value, dict):
            return self._fits_members(value, schema)
        if isinstance(value, list):
            return self._fits_items(value, schema)
        return True

    def _fits_members(self, value: dict[str, Any], schema: dict[str, Any]) -> bool:
        known = schema.get("properties", {})
        required = schema.get("required", ())
        self._spend(len(required))
        if any(name not in value for name in required):
            return False
        if not _in_range(len(value), schema, "minProperties", "maxProperties"):
            return False
        # Names that only a pattern covers are neither known nor additional: they are accepted.
        rest = True if "patternProperties" in schema else schema.get("additionalProperties", True)
        return all(self.fits(inner, known.get(name, rest), ()) for name, inner in value.items())

    def _fits_items(self, value: list[Any], schema: dict[str, Any]) -> bool:
        if not _in_range(len(value), schema, "minItems", "maxItems"):
            return False
        items = schema.get("items", True)
        leading = schema.get("prefixItems", ())
        rest = items
        if isinstance(items, list):
            leading = items
            rest = schema.get("additionalItems", True)
        if schema.get("uniqueItems") is True and len({self._key(item) for item in value}) < len(value):
            return False
        return all(
            self.fits(inner, leading[place] if place < len(leading) else rest, ()) for place, inner in enumerate(value)
        )


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    return _is_number(value) and value == value // 1


PYTHON_TYPES: dict[str, type] = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
TYPE_NAMES = frozenset((*PYTHON_TYPES, "number", "integer"))


def _has_type(value: Any, name: str) -> bool:
    if name == "number":
        return _is_number(value)
    if name == "integer":
        return _is_integer(value)
    return isinstance(value, PYTHON_TYPES[name])


def _fits_number(value: float, schema: dict[str, Any]) -> bool:
    if not _in_range(value, schema, "minimum", "maximum"):
        return False
    low, high, step = (schema.get(name) for name in ("exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
    if (_is_number(low) and value <= low) or (_is_number(high) and value >= high):
        return False
    if not _is_number(step) or step <= 0:
        return True
    return abs(value / step - round(value / step)) < 1e-9


def _in_range(size: float, schema: dict[str, Any], minimum: str, maximum: str) -> bool:
    low = schema.get(minimum)
    high = schema.get(maximum)
    return not (_is_number(low) and size < low) and not (_is_number(high) and size > high)


MARKDOWN = "markdown_extraction"
MIXED_CONTENT = "mixed_content_extraction"
SYNTAX = "syntax_fix"
TRUNCATION = "truncation_completion"
COMBINED = "combined_strategies"

# Possessive quantifiers: no backtracking if no bracket follows.
FENCE = re.compile(r"```[ \t]*+[\w+-]*+\s*+(?=[{\[])")
WHITESPACE = "\ufeff \t\r\n"
MAX_LENGTH = 1 << 18  # beyond it, parsing in Python would take too long even in a thread
IN_THREAD_FROM = 1 << 13  # from this length on, the work runs in a thread
MAX_TRIES = 20


class Healed(Struct, frozen=True):
    """The extracted text, which is JSON and nothing else.

    `strategies` lists the repairs in order, with combined_strategies last if there are several.
    """

    text: str
    strategies: tuple[str, ...]


class _Candidate(Struct, frozen=True):
    text: str
    value: Any
    end: int
    strategies: tuple[str, ...]


def heal(text: str, format: ResponseFormat) -> Healed | None:
    """Return the JSON in `text`, or None if it is already JSON or contains none of the requested kind.

    Text without an object or array stays unchanged, because a refusal in plain words is a valid response. With a
    schema, only values that conform to it are accepted; without a schema, arrays and empty objects within prose are
    not accepted, nor truncated values that are empty.
    """
    if format.kind == "text" or len(text) > MAX_LENGTH:
        return None
    if len(text) < IN_THREAD_FROM:
        return _heal(text, format)
    return compute(_heal, text, format)


def _heal(text: str, format: ResponseFormat) -> Healed | None:
    if _parses(text):
        return None
    for places, fenced in ((_whole(text), False), (_fences(text), True), (_amid(text), False)):
        candidates = [value for value in _read(text, places, fenced) if _is_wanted(value, format)]
        if candidates:
            best = max(candidates, key=_text_length)
            several = (COMBINED,) if len(best.strategies) > 1 else ()
            return Healed(best.text, best.strategies + several)
    return None


def _text_length(candidate: _Candidate) -> int:
    return len(candidate.text)


def _whole(text: str) -> Iterator[int]:
    start = len(text) - len(text.lstrip(WHITESPACE))
    if text[start : start + 1] in ("{", "["):
        yield start


def _fences(text: str) -> Iterator[int]:
    return (match.end() for match in FENCE.finditer(text))


def _amid(text: str) -> Iterator[int]:
    return (match.start() for match in re.finditer(r"[{\[]", text))


def _read(text: str, places: Iterator[int], fenced: bool) -> Iterator[_Candidate]:
    """Yield the readable values at these positions, without nested ones.

    Stop after as many characters were read in vain as the text has.
    """
    work = tries = end = 0
    for start in places:
        if start < end:
            continue
        tries += 1
        if tries > MAX_TRIES or work > len(text):
            return
        try:
            candidate = _read_at(text, start, fenced)
        except Unrepairable as failure:
            work += failure.at - start
        else:
            end = candidate.end
            yield candidate


def _read_at(text: str, start: int, fenced: bool) -> _Candidate:
    repaired = repair(text, start)
    # Text that needed no repair keeps its original form, including whitespace.
    exact = repaired.text if repaired.fixed or repaired.cut else text[start : repaired.end]
    around = text[:start] + text[repaired.end :]
    mixed = not fenced and bool(around.strip(WHITESPACE))
    named = ((MARKDOWN, fenced), (MIXED_CONTENT, mixed), (SYNTAX, repaired.fixed), (TRUNCATION, repaired.cut))
    used = tuple(name for name, was in named if was) or (SYNTAX,)  # no repair: the text has a byte order mark
    try:
        return _Candidate(exact, _parse(exact), repaired.end, used)
    except (ValueError, RecursionError):
        raise Unrepairable(repaired.end) from None


def _is_wanted(candidate: _Candidate, format: ResponseFormat) -> bool:
    if format.kind == "json_schema" and format.schema is not None:
        return conforms(candidate.value, format.schema)
    if TRUNCATION in candidate.strategies and not candidate.value:
        return False
    return MIXED_CONTENT not in candidate.strategies or (isinstance(candidate.value, dict) and bool(candidate.value))


def _parses(text: str) -> bool:
    try:
        _parse(text)
    except (ValueError, RecursionError):
        return False
    return True


def _parse(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
