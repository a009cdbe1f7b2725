"""Generates strings that match common regular expressions, without running them.

A schema's pattern is untrusted: running it could take exponential time, but generating a string takes linear time.
"""

from dataclasses import dataclass

from gateway.providers.sandbox.error_responses import refuse

LONGEST = 10_000
LONGEST_PATTERN = 4_000
LONGEST_BOUNDS = 16  # "{123456,123456}"
CLASSES = {"d": "0", "w": "a", "s": " ", "D": "a", "W": "-", "S": "a"}
CONTROLS = {"n": "\n", "t": "\t", "r": "\r"}
ANY_CHARACTER = "a"
LAST = "\U0010ffff"
SHORTHANDS = {
    "w": (("a", "z"), ("A", "Z"), ("0", "9"), ("_", "_")),
    "d": (("0", "9"),),
    "s": ((" ", " "), ("\t", "\r")),
    "W": (("-", "-"), (" ", "/"), (":", "@"), ("[", "^"), ("`", "`"), ("{", LAST)),
    "D": (("a", "z"), (" ", "/"), (":", LAST)),
    "S": (("a", "z"), ("!", LAST)),
}
OTHERS = "a0A-_ ~"


@dataclass(slots=True)
class _Pattern:
    """A pattern during parsing. `extra` is the number of repetitions of an open-ended part beyond its minimum."""

    text: str
    extra: int = 0
    place: int = 0

    def peek(self) -> str:
        return self.text[self.place : self.place + 1]

    def take(self) -> str:
        self.place += 1
        return self.text[self.place - 1 : self.place]


def write_match(pattern: str, shortest: int = 0) -> str:
    """Return a string that matches `pattern`, at least `shortest` long where its open-ended parts allow it.

    InvalidRequest for look-arounds, back references and other constructs that are not regular.
    """
    if len(pattern) > LONGEST_PATTERN:
        raise refuse(f"The sandbox does not read patterns of more than {LONGEST_PATTERN:,} characters.")
    made = _make(pattern, 0)
    if len(made) < shortest:
        made = _make(pattern, min(shortest, LONGEST))[:LONGEST]
        made = _shorten(pattern, shortest, made)
    return made


def _shorten(pattern: str, shortest: int, longest: str) -> str:
    low = 1
    high = min(shortest, LONGEST)
    best = longest
    while low <= high:
        middle = (low + high) // 2
        made = _make(pattern, middle)
        if len(made) >= shortest:
            best = made
            high = middle - 1
        else:
            low = middle + 1
    return best


def _make(pattern: str, extra: int) -> str:
    state = _Pattern(pattern, extra)
    made = _alternatives(state)
    if state.peek():
        raise _unsupported(pattern)
    return made


def _alternatives(state: _Pattern) -> str:
    first = _sequence(state)
    while state.peek() == "|":
        state.take()
        _sequence(state)
    return first


def _sequence(state: _Pattern) -> str:
    made: list[str] = []
    size = 0
    while (head := state.peek()) and head not in "|)":
        piece = _atom(state)
        made.append(_repeat(state, piece))
        size += len(made[-1])
        if size > LONGEST:
            raise refuse(f"The sandbox makes no string longer than {LONGEST} characters.")
    return "".join(made)


def _atom(state: _Pattern) -> str:
    head = state.take()
    if head in "^$":
        return ""
    if head == ".":
        return ANY_CHARACTER
    if head == "\\":
        return _escape(state)
    if head == "[":
        return _class(state)
    if head == "(":
        return _group(state)
    if head in "*+?":
        raise _unsupported(state.text)
    return head


def _escape(state: _Pattern) -> str:
    head = state.take()
    if head in ("b", "B", "A", "Z", "z"):
        return ""
    if head == "u":
        digits = state.text[state.place : state.place + 4]
        state.place += 4
        return _unicode(state, digits)
    if not head or head.isdigit() or head in "kpPx":
        raise _unsupported(state.text)
    return CLASSES.get(head) or CONTROLS.get(head) or head


def _unicode(state: _Pattern, digits: str) -> str:
    try:
        made = chr(int(digits, 16))
        made.encode()
    except ValueError as error:
        raise _unsupported(state.text) from error
    return made


def _group(state: _Pattern) -> str:
    if state.peek() == "?":
        state.take()
        if state.take() != ":":
            raise _unsupported(state.text)
    made = _alternatives(state)
    if state.take() != ")":
        raise _unsupported(state.text)
    return made


def _class(state: _Pattern) -> str:
    negated = state.peek() == "^"
    if negated:
        state.take()
    spans: list[tuple[str, str]] = []
    while not spans or state.peek() != "]":
        if not state.peek():
            raise _unsupported(state.text)
        spans.extend(_spans(state))
    state.take()
    if not negated:
        return spans[0][0]
    return next((letter for letter in OTHERS if not any(low <= letter <= high for low, high in spans)), "é")


def _spans(state: _Pattern) -> tuple[tuple[str, str], ...]:
    """Return a member of a class as ranges (first and last character); a shorthand such as \\w stands for its ASCII
    characters."""
    if state.peek() == "\\":
        shorthand = state.text[state.place + 1 : state.place + 2]
    else:
        shorthand = ""
    if shorthand in SHORTHANDS:
        state.place += 2
        return SHORTHANDS[shorthand]
    low = _member(state)
    following = state.text[state.place + 1 : state.place + 2]
    if state.peek() != "-" or following in ("]", ""):
        return ((low, low),)
    state.take()
    return ((low, _member(state)),)


def _member(state: _Pattern) -> str:
    head = state.take()
    if head == "\\":
        return _escape(state)
    return head


def _repeat(state: _Pattern, piece: str) -> str:
    bounds = _bounds(state)
    if bounds is None:
        return piece
    if state.peek() in ("?", "+"):
        state.take()
    least, most = bounds
    if most is None:
        times = least + state.extra
    else:
        times = min(most, least + state.extra)
    if times * len(piece) > LONGEST:
        raise refuse(f"The sandbox makes no string longer than {LONGEST} characters.")
    return piece * times


def _bounds(state: _Pattern) -> tuple[int, int | None] | None:
    head = state.peek()
    simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(head)
    if simple:
        state.take()
        return simple
    if head != "{":
        return None
    end = state.text.find("}", state.place, state.place + LONGEST_BOUNDS)
    low, comma, high = state.text[state.place + 1 : end].partition(",")
    if end < 0 or not low.isdigit() or not (high.isdigit() or high == "") or len(low + high) > 12:
        return None
    state.place = end + 1
    if not comma:
        return int(low), int(low)
    if high:
        return int(low), int(high)
    return int(low), None


def _unsupported(pattern: str) -> Exception:
    return refuse(f"The sandbox cannot generate a value for the pattern {pattern[:200]!r}.")
