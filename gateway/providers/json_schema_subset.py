"""Rewrites a JSON Schema into the subset that an upstream accepts, and reports what was dropped."""

from functools import lru_cache
from typing import Any

import orjson
from msgspec import Struct

from gateway.errors import InvalidRequest
from gateway.providers.grammars import ANNOTATIONS, Grammar
from gateway.providers.schema_types import (
    SIMPLE,
    TYPED_WORDS,
    WORDS_OF_TYPE,
    distinct,
    join_branches,
    look_up,
    merge,
    types_of,
    with_null,
)

Schema = dict[str, Any]

MAX_CACHED_BYTES = 1 << 13  # bytes of a schema, up to which its rewritten form is cached
DEPTH_LIMIT = 48
NODE_LIMIT = 4000  # expanding references can multiply a schema: further nodes are cut
STEP_LIMIT = 100_000  # nodes visited, and keywords merged
RECURSION = "$ref (recursive)"
UNRESOLVED = "$ref (unresolved)"
MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
SINGLE = (
    "items",
    "additionalProperties",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "propertyNames",
    "additionalItems",
    "unevaluatedProperties",
    "unevaluatedItems",
)
UNIONS = ("anyOf", "oneOf")
LISTS = (*UNIONS, "allOf", "prefixItems")
HOLDING = frozenset((*MAPS, *SINGLE, *LISTS))
CHECKED = frozenset(("format", "minItems", "required", "enum", *LISTS, *MAPS))
TRANSLATED = frozenset(
    ("const", "nullable", "exclusiveMinimum", "exclusiveMaximum", "items", "prefixItems", "patternProperties")
)


class Rewritten(Struct, frozen=True):
    """A rewritten schema. `dropped` lists each keyword of the original that it does not enforce, once."""

    schema: Schema
    dropped: tuple[str, ...] = ()


def rewrite(schema: Any, grammar: Grammar) -> Rewritten:
    """Return `schema` in the subset `grammar`; the original is not changed.

    The new schema accepts every value that the original accepts, unless the grammar is closed. Recursive and unresolved
    references become an open schema of their type, as do all nodes after STEP_LIMIT steps. Annotations that a grammar
    lacks are dropped without a warning. InvalidRequest for keywords with values of a wrong type.
    """
    try:
        text = orjson.dumps(schema)
    except TypeError:  # such as a number of more than 64 bits
        text = b""
    if not 0 < len(text) <= MAX_CACHED_BYTES:
        return _rewrite(schema, grammar)
    written, dropped = _rewrite_text(text, grammar)
    return Rewritten(orjson.loads(written), dropped)


@lru_cache(maxsize=512)
def _rewrite_text(text: bytes, grammar: Grammar) -> tuple[bytes, tuple[str, ...]]:
    """Return a rewritten schema as JSON text. Agents send the same tools in each turn."""
    rewritten = _rewrite(orjson.loads(text), grammar)
    return orjson.dumps(rewritten.schema), rewritten.dropped


def _rewrite(schema: Any, grammar: Grammar) -> Rewritten:
    work = _Rewriter(schema if isinstance(schema, dict) else {}, grammar)
    try:
        return Rewritten(work.write_root(), tuple(work.dropped))
    except (TypeError, ValueError, AttributeError, LookupError, RecursionError):
        # The schema is arbitrary JSON: any keyword may have a value of the wrong type.
        raise InvalidRequest(
            "A JSON Schema of the request cannot be read: a value has a wrong type, or it is nested too deeply."
        ) from None


class _Rewriter:
    """The state of one rewrite. `active` are the references that are being expanded around a node; `steps` counts
    visited nodes and merged keywords."""

    def __init__(self, root: Schema, grammar: Grammar) -> None:
        self._root = root
        self._grammar = grammar
        self._nodes = 0
        self._targets: dict[str, Any] = {}
        self.steps = 0
        self.dropped: dict[str, None] = {}

    def write_root(self) -> Schema:
        root = self._root
        if self._grammar.object_root:
            root = self._object_root(self._expand(root, (), whole=True)[0])
        written = self.write(root, (), 0)
        allowed = self._grammar.root_words
        if allowed is not None:
            for word in [word for word in written if word not in allowed]:
                self._drop(word)
                del written[word]
        return written

    def write(self, schema: Any, active: tuple[str, ...], depth: int) -> Schema:
        """Return a sub-schema in the grammar."""
        self._nodes += 1
        if depth > DEPTH_LIMIT or self._nodes > NODE_LIMIT or self.steps > STEP_LIMIT:
            self._drop("depth")
            return self._open("")
        node, active = self._expand(schema, active)
        node = self._translate(node)
        union = next((word for word in UNIONS if isinstance(node.get(word), list)), "")
        if union and self._grammar.lone_unions:
            return self._write_union(node, union, active, depth)
        if union == "oneOf" and not self._grammar.allows("oneOf"):
            node = {("anyOf" if word == "oneOf" else word): value for word, value in node.items()}
        if not self._grammar.typed:
            return self._close(self._write_words(node, active, depth))
        kinds = types_of(node)
        if len([kind for kind in kinds if kind != "null"]) == 1 or kinds == ["null"]:
            return self._write_typed(node, kinds, active, depth)
        return self._write_kinds(node, kinds, active, depth)

    # References and conjunctions.

    def _expand(self, schema: Any, active: tuple[str, ...], whole: bool = False) -> tuple[Schema, tuple[str, ...]]:
        """Return the schema with its reference and allOf expanded. `whole`: also where the grammar allows these
        keywords."""
        if not isinstance(schema, dict):
            if schema is False:
                self._drop("false")
            return {}, active
        self.steps += 1
        if self.steps > STEP_LIMIT:
            self._drop("depth")
            return {}, active
        parts: list[Schema] = []
        rest = schema
        ref = schema.get("$ref")
        every = schema.get("allOf")
        if isinstance(ref, str) and (whole or not self._keeps(ref)):
            rest = {word: value for word, value in rest.items() if word != "$ref"}
            target, active = self._follow(ref, active, whole)
            parts.append(target)
        if isinstance(every, list) and (whole or not self._grammar.allows("allOf")):
            rest = {word: value for word, value in rest.items() if word != "allOf"}
            for part in every:
                target, active = self._expand(part, active, whole=True)
                parts.append(target)
        if not parts:
            return rest, active
        return self._merge([rest, *parts]), active

    def _merge(self, schemas: list[Schema]) -> Schema:
        return merge(schemas, self._drop) if self._affords(schemas) else schemas[0]

    def _affords(self, schemas: list[Schema]) -> bool:
        """Whether the step limit allows merging these; counts a step for each keyword, and for each value in it."""
        if self.steps <= STEP_LIMIT:
            self.steps += sum(1 + sum(map(_size, schema.values())) for schema in schemas)
        if self.steps > STEP_LIMIT:
            self._drop("depth")
        return self.steps <= STEP_LIMIT

    def _keeps(self, ref: str) -> bool:
        stays = ref == "#" or ref.startswith(("#/$defs/", "#/definitions/"))
        return self._grammar.refs and stays and self._look_up(ref) is not None

    def _follow(self, ref: str, active: tuple[str, ...], whole: bool) -> tuple[Schema, tuple[str, ...]]:
        target = self._look_up(ref)
        if target is None:
            self._drop(UNRESOLVED)
            return {}, active
        if ref in active or len(active) > DEPTH_LIMIT or self.steps > STEP_LIMIT:
            self._drop(RECURSION)
            kind = target.get("type") if isinstance(target, dict) else None
            return ({"type": kind} if isinstance(kind, str) else {}), active
        return self._expand(target, (*active, ref), whole)

    def _look_up(self, ref: str) -> Any:
        if ref not in self._targets:
            self._targets[ref] = look_up(self._root, ref)
        return self._targets[ref]

    def _object_root(self, root: Schema) -> Schema:
        """Return the root as one object with the properties of all branches. A property is required if every branch
        requires it."""
        root = self._translate(root)
        for word in UNIONS:
            branches = root.get(word)
            if not isinstance(branches, list):
                continue
            self._drop(word)
            base = {name: value for name, value in root.items() if name not in (word, "additionalProperties")}
            expanded = [self._expand(branch, (), whole=True)[0] for branch in branches]
            objects = [branch for branch in expanded if branch.get("type", "object") == "object"]
            root = join_branches(base, objects) if self._affords([base, *objects]) else base
        return {"type": "object", **{word: value for word, value in root.items() if word != "type"}}

    # Keywords.

    def _translate(self, node: Schema) -> Schema:
        """Replace keywords that the grammar lacks by equivalent keywords, where possible."""
        if node.keys().isdisjoint(TRANSLATED):
            return node
        node = dict(node)
        allows = self._grammar.allows
        if "const" in node and not allows("const"):
            node.setdefault("enum", [node["const"]])
            del node["const"]
        if node.get("nullable") is True and not allows("nullable"):
            del node["nullable"]
            node = with_null(node)
        for word, plain in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if word in node and not allows(word):
                self._include(node, word, plain)
        if isinstance(node.get("items"), list):
            node["prefixItems"] = node.pop("items")
            node["items"] = node.pop("additionalItems", True)
        if "prefixItems" in node and not allows("prefixItems"):
            self._untuple(node)
        if "patternProperties" in node and not allows("patternProperties"):
            self._drop("patternProperties")
            del node["patternProperties"]
            node.pop("additionalProperties", None)  # it applied to properties that match no pattern
        return node

    def _include(self, node: Schema, word: str, plain: str) -> None:
        """Replace an exclusive limit by an inclusive limit, which is exact for integers."""
        limit = node.pop(word)
        if isinstance(limit, bool) or not isinstance(limit, int | float):
            self._drop(word)
            return
        if node.get("type") == "integer" and float(limit).is_integer():
            limit = int(limit) + (1 if plain == "minimum" else -1)
        else:
            self._drop(word)
        node.setdefault(plain, limit)

    def _untuple(self, node: Schema) -> None:
        """Replace a tuple by a list of any of its member types."""
        self._drop("prefixItems")
        members = [member for member in node.pop("prefixItems") if isinstance(member, dict)]
        rest = node.get("items", True)
        if rest is False:
            node["items"] = {"anyOf": members} if len(members) > 1 else (members or [{}])[0]
        elif isinstance(rest, dict) and rest:
            node["items"] = {"anyOf": [*members, rest]}
        else:
            node["items"] = {}

    def _write_words(self, node: Schema, active: tuple[str, ...], depth: int) -> Schema:
        """Return the node's keywords that the grammar allows, with rewritten sub-schemas."""
        written: Schema = {}
        for word, value in node.items():
            if word in ("$defs", "definitions") and not self._grammar.refs:
                continue
            if not self._grammar.allows(word):
                if word not in ANNOTATIONS and not word.startswith("x-"):
                    self._drop(word)
                continue
            if word not in CHECKED or self._fits(word, value, node):
                written[word] = self._write_value(word, value, active, depth) if word in HOLDING else value
        if self._grammar.declared and "required" in written:
            declared = written.get("properties", {})
            names = [name for name in written["required"] if isinstance(name, str) and name in declared]
            written["required"] = names
            if not names:
                del written["required"]
        return written

    def _fits(self, word: str, value: Any, node: Schema) -> bool:
        """Whether the grammar accepts this value of an allowed keyword."""
        grammar = self._grammar
        fits = True
        if word == "format" and grammar.formats is not None:
            kinds = [kind for kind in types_of(node) if kind != "null"]
            fits = any(value in grammar.formats.get(kind, ()) for kind in kinds)
        elif word == "minItems" and grammar.item_counts is not None:
            fits = value in grammar.item_counts
        elif word in ("required", "enum"):
            fits = isinstance(value, list) and (word == "required" or bool(value))
        elif word in LISTS:
            fits = isinstance(value, list) and bool(value)
        elif word in MAPS:
            fits = isinstance(value, dict)
        if not fits:
            self._drop(f"{word} ({value})" if word == "format" else word)
        return fits

    def _write_value(self, word: str, value: Any, active: tuple[str, ...], depth: int) -> Any:
        if word in MAPS:
            return {name: self.write(schema, active, depth + 1) for name, schema in value.items()}
        if word in LISTS:
            return [self.write(schema, active, depth + 1) for schema in value]
        boolean = isinstance(value, bool) and (word == "additionalProperties" or self._grammar.words is None)
        if word in SINGLE and not boolean:
            return self.write(value, active, depth + 1)
        return value

    # Unions and types.

    def _write_union(self, node: Schema, union: str, active: tuple[str, ...], depth: int) -> Schema:
        """Return a union without sibling keywords. They move into each branch; null becomes a branch or a flag."""
        for other in UNIONS:
            if other != union and other in node:
                self._drop(other)
        notes: Schema = {word: node[word] for word in ("title", "description") if word in node}
        base = {word: value for word, value in node.items() if word not in UNIONS and word not in notes}
        default = base.pop("default", None)
        branches: list[Schema] = []
        for branch in node[union]:
            expanded, inner = self._expand(branch, active)
            written = self.write(self._merge([expanded, base]) if base else expanded, inner, depth + 1)
            branches += written["anyOf"] if written.keys() == {"anyOf"} else [written]
        return self._settle(branches, notes, default)

    def _settle(self, branches: list[Schema], notes: Schema, default: Any = None) -> Schema:
        """Return branches as a schema. A single branch replaces the union; a null branch becomes a flag where the
        grammar has `nullable`."""
        unique = distinct(branches)
        marks = self._grammar.allows("nullable") and self._grammar.words is not None
        real = [branch for branch in unique if branch != {"type": "NULL"}] if marks else unique
        if marks and real and len(real) < len(unique):
            real[0] = {**real[0], "nullable": True}
        if not real:
            return {**unique[0], **notes} if unique else self._open("")
        if len(real) == 1:
            extra = {"default": default} if default is not None and self._grammar.allows("default") else {}
            return {**real[0], **notes, **extra}
        real[0] = {**notes, **real[0]}
        return {"anyOf": real}

    def _write_kinds(self, node: Schema, kinds: list[str], active: tuple[str, ...], depth: int) -> Schema:
        """Return a node of several types, or of any type, as a union of one branch per type."""
        notes: Schema = {word: node[word] for word in ("title", "description") if word in node}
        if not kinds:
            return self._settle([self._open("")], notes)
        rest = {word: value for word, value in node.items() if word not in notes and word != "type"}
        branches = [self.write({**rest, "type": kind}, active, depth + 1) for kind in kinds]
        return self._settle(branches, notes)

    def _write_typed(self, node: Schema, kinds: list[str], active: tuple[str, ...], depth: int) -> Schema:
        """Return a node of one type with only the keywords of that type."""
        kind = next((kind for kind in kinds if kind != "null"), "null")
        own = WORDS_OF_TYPE.get(kind, frozenset())
        words = {w: v for w, v in node.items() if w == "type" or w == "enum" or w not in TYPED_WORDS or w in own}
        listed = words.get("enum")
        if isinstance(listed, list):
            self._write_enum(words, kind)
        written = self._write_words({**words, "type": kind}, active, depth)
        written["type"] = kind.upper() if self._grammar.upper_types else kind
        if ("null" in kinds and kind != "null") or (isinstance(listed, list) and None in listed):
            written["nullable"] = True
        if kind == "array" and "items" not in written:
            written["items"] = self._open("items")
        return written

    def _write_enum(self, node: Schema, kind: str) -> None:
        """Move an enum with values other than strings into the description, for grammars that only allow strings in
        enums."""
        values = [value for value in node.pop("enum") if value is not None]
        if kind == "string" and values and all(isinstance(value, str) and value for value in values):
            node["enum"] = values
        elif values:
            self._drop("enum")
            reported = f"One of: {', '.join(map(str, values[:50]))}."
            node["description"] = f"{node['description']} {reported}" if node.get("description") else reported

    def _open(self, place: str) -> Schema:
        """Return a schema that accepts any value. Where types are required, it lists all of them (nested lists contain
        only strings)."""
        if not self._grammar.typed:
            return self._close({"type": "object"}) if self._grammar.closed else {}
        name = str.upper if self._grammar.upper_types else str
        kinds: list[Schema] = [{"type": name(kind)} for kind in SIMPLE]
        kinds[0]["nullable"] = True
        if place != "items":
            kinds.append({"type": name("array"), "items": self._open("items")})
        else:
            kinds.append({"type": name("array"), "items": {"type": name("string")}})
        return {"anyOf": kinds}

    # Closed grammars.

    def _close(self, node: Schema) -> Schema:
        """Return the node without undeclared properties, when the grammar demands that."""
        if not self._grammar.closed or "object" not in types_of(node):
            return node
        if node.get("additionalProperties", False) is not False or not node.get("properties"):
            self._drop("additionalProperties")
        properties = node.get("properties") or {}
        required = node.get("required") or []
        if self._grammar.all_required:
            always = set(required)
            properties = {name: s if name in always else with_null(s) for name, s in properties.items()}
            required = list(properties)
        return {**node, "properties": properties, "required": required, "additionalProperties": False}

    def _drop(self, word: str) -> None:
        self.dropped[word] = None


def _size(value: Any) -> int:
    return 1 + len(value) if isinstance(value, dict | list) else 1
