"""Filters of SCIM (RFC 7644, section 3.4.2.2): a bounded parser, and the evaluation of a filter on a resource."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import orjson
from msgspec import Struct

from gateway.clock import from_datetime, to_iso
from gateway.errors import InvalidRequest
from gateway.surfaces.scim.attributes import AttributePath, ScimAttribute, ScimResourceType, resolve

MAX_LENGTH = 2_000  # characters
MAX_DEPTH = 10  # levels of parentheses, brackets and "not"
MAX_COMPARISONS = 50
PARTS_OF_TEXTS = ("co", "sw", "ew")
OPERATORS = frozenset(("eq", "ne", *PARTS_OF_TEXTS, "gt", "ge", "lt", "le"))
TOKEN = re.compile(r'[()\[\]]|"(?:[^"\\]|\\.)*"|[^\s()\[\]"]+')


class Comparison(Struct, frozen=True):
    """A comparison. `path` is the attribute as written; `operator` "pr" has no value."""

    path: str
    operator: str
    value: Any = None


class Negation(Struct, frozen=True):
    inner: "FilterNode"


class Conjunction(Struct, frozen=True):
    """All parts hold, or with `any_part` at least one of them."""

    parts: tuple["FilterNode", ...]
    any_part: bool = False


class ValueFilter(Struct, frozen=True):
    """A value of a multi-valued attribute fulfils the inner filter, as in emails[type eq "work"]."""

    path: str
    inner: "FilterNode"


FilterNode = Comparison | Negation | Conjunction | ValueFilter


class PatchPath(Struct, frozen=True):
    """A path of PATCH: an attribute, a filter of its values (None: without) and a sub-attribute ("": none)."""

    attribute: str
    chosen: FilterNode | None = None
    part: str = ""


@lru_cache(maxsize=512)
def parse_filter(text: str) -> FilterNode:
    """Return the filter of a query. Raises InvalidRequest (code invalid_filter)."""
    parser = _Parser(text)
    node = parser.read_any()
    parser.end()
    return node


@lru_cache(maxsize=512)
def parse_path(text: str) -> PatchPath:
    """Return the path of a PATCH operation. Raises InvalidRequest (code invalid_filter)."""
    parser = _Parser(text)
    attribute = parser.read_word()
    if parser.peek() != "[":
        parser.end()
        return PatchPath(attribute)
    chosen = parser.read_brackets()
    part = ""
    if parser.peek():
        part = parser.read_word()
        if not part.startswith("."):
            raise _refuse("A sub-attribute after a filter begins with a dot")
    parser.end()
    return PatchPath(attribute, chosen, part[1:])


class _Parser:
    """A recursive descent parser over the tokens of a filter. Length, depth and number of comparisons are bounded."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise _refuse(f"A filter has at most {MAX_LENGTH:,} characters")
        self._tokens = list(_tokenize(text))
        self._position = 0
        self._depth = 0
        self._comparisons = 0

    def peek(self) -> str:
        """Return the next token, "" at the end."""
        if self._position < len(self._tokens):
            return self._tokens[self._position]
        return ""

    def end(self) -> None:
        if self.peek():
            raise _refuse(f"Unexpected {self.peek()[:40]!r}")

    def read_word(self) -> str:
        """Return an attribute path or an operator."""
        token = self._next()
        if not token or token[0] in '"()[]':
            raise _refuse(f"An attribute is expected before {token[:40]!r}" if token else "The filter is incomplete")
        return token

    def read_any(self) -> FilterNode:
        """Return a filter with "or", which binds less than "and"."""
        parts = [self._read_all()]
        while self.peek().lower() == "or":
            self._next()
            parts.append(self._read_all())
        if len(parts) == 1:
            return parts[0]
        return Conjunction(tuple(parts), any_part=True)

    def read_brackets(self) -> FilterNode:
        """Return the filter within brackets."""
        return self._read_group("[", "]")

    def _read_all(self) -> FilterNode:
        parts = [self._read_one()]
        while self.peek().lower() == "and":
            self._next()
            parts.append(self._read_one())
        if len(parts) == 1:
            return parts[0]
        return Conjunction(tuple(parts))

    def _read_one(self) -> FilterNode:
        if self.peek() == "(":
            return self._read_group("(", ")")
        word = self.read_word()
        if word.lower() == "not" and self.peek() == "(":
            return Negation(self._read_group("(", ")"))
        if self.peek() == "[":
            return ValueFilter(word, self.read_brackets())
        return self._read_comparison(word)

    def _read_comparison(self, path: str) -> Comparison:
        self._comparisons += 1
        if self._comparisons > MAX_COMPARISONS:
            raise _refuse(f"A filter has at most {MAX_COMPARISONS} comparisons")
        operator = self.read_word().lower()
        if operator == "pr":
            return Comparison(path, operator)
        if operator not in OPERATORS:
            raise _refuse(f"There is no operator {operator[:40]!r}")
        return Comparison(path, operator, _read_value(self._next()))

    def _read_group(self, opening: str, closing: str) -> FilterNode:
        self._expect(opening)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _refuse(f"A filter is nested at most {MAX_DEPTH} levels deep")
        node = self.read_any()
        self._depth -= 1
        self._expect(closing)
        return node

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise _refuse(f"{token} is missing")

    def _next(self) -> str:
        token = self.peek()
        self._position += 1
        return token


def _tokenize(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        match = TOKEN.match(text, position)
        if match is None:
            raise _refuse("A text has no closing quotation mark")
        yield match.group()
        position = match.end()


def _read_value(token: str) -> Any:
    """Return the value of a comparison: JSON, except that the words of JSON may have any case."""
    text = token if token.startswith('"') else token.lower()
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise _refuse(f"{token[:40]!r} is no value; texts are written in quotation marks") from None
    if isinstance(value, dict | list):
        raise _refuse("a comparison needs a text, a number, true, false or null")
    return value


def _refuse(reason: str) -> InvalidRequest:
    return InvalidRequest(f"The filter is not valid: {reason}.", param="filter", code="invalid_filter")


def matches(node: FilterNode, kind: ScimResourceType, resource: Mapping[str, Any]) -> bool:
    """Return whether a resource fulfils a filter. Attributes that it does not have count as absent."""
    if isinstance(node, Negation):
        return not matches(node.inner, kind, resource)
    if isinstance(node, Conjunction):
        results = (matches(part, kind, resource) for part in node.parts)
        return any(results) if node.any_part else all(results)
    path = resolve(kind, node.path)
    if isinstance(node, ValueFilter):
        attribute = path.attribute
        return attribute is not None and any(
            matches_value(node.inner, attribute, value) for value in _values_at(path, resource)
        )
    values = _values_at(path, resource)
    attribute = path.part or path.attribute
    if attribute is None:
        return _compares(node, ScimAttribute("", ""), [])
    return _compares(node, attribute, values)


def matches_value(node: FilterNode, attribute: ScimAttribute, value: Any) -> bool:
    """Return whether a value of a multi-valued attribute fulfils the filter within brackets."""
    if isinstance(node, Negation):
        return not matches_value(node.inner, attribute, value)
    if isinstance(node, Conjunction):
        results = (matches_value(part, attribute, value) for part in node.parts)
        return any(results) if node.any_part else all(results)
    if isinstance(node, ValueFilter):
        return False
    part = attribute.part(node.path)
    if part is None:
        return _compares(node, ScimAttribute("", ""), [])
    inner = value.get(part.name) if isinstance(value, dict) else value
    return _compares(node, part, [inner])


def equalities(node: FilterNode) -> dict[str, str]:
    """Return the texts that attributes must equal for the filter to hold, by lower-case path: those of a comparison, or
    of the parts of a conjunction."""
    if isinstance(node, Conjunction) and not node.any_part:
        parts: tuple[FilterNode, ...] = node.parts
    else:
        parts = (node,)
    found = {}
    for part in parts:
        path = ""
        if isinstance(part, ValueFilter) and isinstance(part.inner, Comparison):
            path = f"{part.path}.{part.inner.path}"
            part = part.inner
        elif isinstance(part, Comparison):
            path = part.path
        if path and isinstance(part, Comparison) and part.operator == "eq" and isinstance(part.value, str):
            found[path.rpartition(":")[2].lower()] = part.value
    return found


def attributes_in(node: FilterNode) -> set[str]:
    """Return the lower-case names of the attributes that a filter reads."""
    if isinstance(node, Negation):
        return attributes_in(node.inner)
    if isinstance(node, Conjunction):
        return {name for part in node.parts for name in attributes_in(part)}
    return {node.path.rpartition(":")[2].partition(".")[0].lower()}


def comparisons_in(node: FilterNode) -> int:
    """Return the number of comparisons of a filter."""
    if isinstance(node, Negation | ValueFilter):
        return comparisons_in(node.inner)
    if isinstance(node, Conjunction):
        return sum(map(comparisons_in, node.parts))
    return 1


def _values_at(path: AttributePath, resource: Mapping[str, Any]) -> list[Any]:
    """Return the values at a path; that of a complex attribute without a sub-attribute is its `value`."""
    attribute = path.attribute
    if attribute is None:
        return []
    holder = resource.get(path.extension, {}) if path.extension else resource
    found = holder.get(attribute.name)
    values = found if isinstance(found, list) else [found]
    part = path.part
    if part is not None:
        return [value.get(part.name) for value in values if isinstance(value, dict)]
    return [value for value in values if value is not None]


def _compares(node: Comparison, attribute: ScimAttribute, values: list[Any]) -> bool:
    present = [_simple(value) for value in values if value not in (None, "", [])]
    if node.operator == "pr":
        return bool(present)
    if node.operator == "ne":
        return not any(_holds("eq", attribute, value, node.value) for value in present) and (
            bool(present) or node.value is not None
        )
    if node.value is None:
        return node.operator == "eq" and not present
    return any(_holds(node.operator, attribute, value, node.value) for value in present)


def _simple(value: Any) -> Any:
    """Return the `value` of a complex value, else the value."""
    if isinstance(value, dict):
        return value.get("value")
    return value


def _holds(operator: str, attribute: ScimAttribute, value: Any, wanted: Any) -> bool:
    if attribute.type == "boolean" and isinstance(wanted, str):
        wanted = wanted.lower() == "true"
    if isinstance(value, bool) or isinstance(wanted, bool):
        return operator == "eq" and value is wanted
    if not isinstance(value, str) or not isinstance(wanted, str):
        return False
    if attribute.type == "dateTime" and operator not in PARTS_OF_TEXTS:
        wanted = _as_shown(wanted)
    if not attribute.case_exact:
        value = value.lower()
        wanted = wanted.lower()
    return _compare_texts(operator, value, wanted)


def _as_shown(moment: str) -> str:
    """Return a moment as resources show theirs, so that texts compare as moments; any other text unchanged."""
    try:
        parsed = datetime.fromisoformat(moment)
        return to_iso(from_datetime(parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)))
    except (ValueError, OverflowError):
        return moment


def _compare_texts(operator: str, value: str, wanted: str) -> bool:
    found: dict[str, bool] = {
        "eq": value == wanted,
        "co": wanted in value,
        "sw": value.startswith(wanted),
        "ew": value.endswith(wanted),
        "gt": value > wanted,
        "ge": value >= wanted,
        "lt": value < wanted,
        "le": value <= wanted,
    }
    return found[operator]
