"""Edits of JSON files as text: what an edit does not change keeps its order, indentation, numbers and comments."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

# JSON with the comments and trailing commas that some agents accept.
TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n\ufeff]+)
      | (?P<comment>//[^\r\n]*|/\*.*?\*/)
      | (?P<string>"(?:[^"\\\x00-\x1f]|\\.)*")
      | (?P<mark>[{}\[\],:])
      | (?P<word>[-+.\w]+)""",
    re.VERBOSE | re.DOTALL,
)
INDENT = "  "


class JsonError(ValueError):
    """The text is not JSON; `line` is the place."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


@dataclass(slots=True)
class Node:
    """A value of the text: where it starts and ends, and the members if it is an object."""

    start: int
    end: int
    value: Any
    members: dict[str, "Node"] | None = None
    first_key: int = -1  # the position of the first key of an object
    last_value_end: int = -1
    has_trailing_comma: bool = False


class Edit(NamedTuple):
    """Replace the text from `start` to `end`."""

    start: int
    end: int
    text: str


@dataclass(slots=True)
class JsonReader:
    """Reads JSON with comments and trailing commas into nodes."""

    text: str
    tokens: list[Token] = field(default_factory=list)
    place: int = 0

    def read(self) -> Node:
        """Return the value of the whole text. Raises JsonError."""
        position = 0
        while position < len(self.text):
            match = TOKEN.match(self.text, position)
            if match is None:
                raise self._error("There is an unexpected character", position)
            if match.lastgroup not in ("space", "comment"):
                self.tokens.append(Token(str(match.lastgroup), match[0], match.start(), match.end()))
            position = match.end()
        node = self._value()
        if self.place < len(self.tokens):
            raise self._error("There is text after the end", self.tokens[self.place].start)
        return node

    def _error(self, message: str, position: int) -> JsonError:
        return JsonError(message, self.text.count("\n", 0, position) + 1)

    def _next(self) -> Token:
        if self.place == len(self.tokens):
            raise self._error("The text ends too early", len(self.text))
        self.place += 1
        return self.tokens[self.place - 1]

    def _peek(self) -> str:
        return self.tokens[self.place].text if self.place < len(self.tokens) else ""

    def _value(self) -> Node:
        token = self._next()
        if token.text == "{":
            return self._object(token)
        if token.text == "[":
            return self._array(token)
        return Node(token.start, token.end, self._scalar(token))

    def _scalar(self, token: Token) -> Any:
        try:
            return json.loads(token.text)
        except ValueError:
            raise self._error("A value cannot be read", token.start) from None

    def _object(self, opening: Token) -> Node:
        node = Node(opening.start, -1, {}, {})
        members: dict[str, Node] = {}
        while self._peek() != "}":
            key = self._next()
            if key.kind != "string":
                raise self._error("A name in double quotes is missing", key.start)
            if node.first_key < 0:
                node.first_key = key.start
            colon = self._next()
            if colon.text != ":":
                raise self._error("A colon is missing", colon.start)
            member = self._value()
            # With a repeated name the last value counts, as in JSON.parse.
            members[self._scalar(key)] = member
            node.last_value_end = member.end
            node.has_trailing_comma = self._ends_with_comma("}")
        node.members = members
        node.value = {name: member.value for name, member in members.items()}
        node.end = self._next().end
        return node

    def _array(self, opening: Token) -> Node:
        values = []
        while self._peek() != "]":
            values.append(self._value().value)
            self._ends_with_comma("]")
        return Node(opening.start, self._next().end, values)

    def _ends_with_comma(self, closing: str) -> bool:
        """Read the comma after a value and return whether it is a trailing one."""
        if self._peek() == ",":
            self._next()
            return self._peek() == closing
        if self._peek() != closing:
            position = self.tokens[self.place].start if self.place < len(self.tokens) else len(self.text)
            raise self._error("A comma is missing", position)
        return False


class JsonEditor:
    """Sets members of the JSON object in a text."""

    def __init__(self, text: str, allow_comments: bool) -> None:
        """Raises JsonError if the text is not a JSON object; comments and trailing commas only if they are allowed."""
        if not text.strip("\ufeff \t\r\n"):
            text = "{}\n"
        self.text = text
        if not allow_comments:
            self._check_strict(text)
        self._root = JsonReader(text).read()
        if self._root.members is None:
            raise JsonError("The file does not contain an object", 1)
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._unit = self._indent_of(self._root.first_key) or INDENT

    def _check_strict(self, text: str) -> None:
        try:
            json.loads(text.removeprefix("\ufeff"))
        except json.JSONDecodeError as error:
            raise JsonError("The file is not valid JSON", error.lineno) from None

    @property
    def value(self) -> dict[str, Any]:
        """The object of the text."""
        node: dict[str, Any] = self._root.value
        return node

    def merge(self, changes: Mapping[str, Any]) -> str:
        """Return the text with these members set. A mapping is merged into the object of its name; every other value
        replaces the former one."""
        edits = self._edits(self._root, changes)
        text = self.text
        for edit in sorted(edits, key=attrgetter("start"), reverse=True):
            text = text[: edit.start] + edit.text + text[edit.end :]
        return text

    def _edits(self, node: Node, changes: Mapping[str, Any]) -> list[Edit]:
        members = node.members or {}
        edits: list[Edit] = []
        added: dict[str, Any] = {}
        for name, value in changes.items():
            member = members.get(name)
            if member is None:
                added[name] = value
            elif isinstance(value, Mapping) and member.members is not None:
                edits += self._edits(member, value)
            elif member.value != value or type(member.value) is not type(value):
                edits.append(Edit(member.start, member.end, self._written(value, self._indent_of(member.start))))
        if added:
            edits += self._additions(node, added)
        return edits

    def _additions(self, node: Node, added: Mapping[str, Any]) -> list[Edit]:
        """Return the edits that append members to an object."""
        is_multiline = "\n" in self.text[node.start : node.end]
        if not node.members or is_multiline:
            return self._added_lines(node, added)
        pairs = ", ".join(f"{json.dumps(name)}: {self._written(value, None)}" for name, value in added.items())
        end = node.last_value_end
        return [Edit(end, end, f", {pairs}")]

    def _added_lines(self, node: Node, added: Mapping[str, Any]) -> list[Edit]:
        outer = self._indent_of(node.start)
        inner = self._indent_of(node.first_key) if node.members else ""
        if len(inner) <= len(outer):
            inner = outer + self._unit
        lines = [f"{inner}{json.dumps(name)}: {self._written(value, inner)}" for name, value in added.items()]
        block = f",{self._newline}".join(lines)
        # The new lines follow the last text of the object, which may be a comment.
        closing = node.end - 1
        last = len(self.text[:closing].rstrip())
        edits = [Edit(last, closing, f"{self._newline}{block}{self._newline}{outer}")]
        if node.members and not node.has_trailing_comma:
            edits.append(Edit(node.last_value_end, node.last_value_end, ","))
            if node.last_value_end == last:
                edits = [Edit(last, closing, f",{self._newline}{block}{self._newline}{outer}")]
        return edits

    def _written(self, value: Any, indent: str | None) -> str:
        """Return a value as JSON, in one line if `indent` is None."""
        if indent is None:
            return json.dumps(value, ensure_ascii=False)
        text = json.dumps(value, indent=self._unit, ensure_ascii=False)
        return text.replace("\n", f"{self._newline}{indent}")

    def _indent_of(self, position: int) -> str:
        """Return the white space at the start of the line of a position."""
        if position < 0:
            return ""
        start = self.text.rfind("\n", 0, position) + 1
        line = self.text[start:position]
        return line[: len(line) - len(line.lstrip(" \t"))]
