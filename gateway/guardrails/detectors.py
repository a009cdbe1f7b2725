"""Detectors of guardrails: the built-in ones of config/detectors.toml, and terms and patterns of organizations."""

import re
import string
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from gateway.configuration.settings import CONFIG
from gateway.errors import InvalidRequest
from gateway.guardrails.value_checks import Check, find_check
from gateway.runtime.lazy_import import LazyImport

if TYPE_CHECKING:
    import re2
else:
    re2 = LazyImport("re2")

TABLE = CONFIG / "detectors.toml"
ALNUM = string.ascii_letters + string.digits
# Characters of escapes and look-alikes, in which a value may be written too.
OTHERWISE = "\\%\u00a0\u00ad\u2010\u2011\u200b\u200c\u200d\u202f\u2060\ufeff" + "".join(map(chr, range(0xFF01, 0xFF5F)))
# Characters that a value may consist of, by the name of the alphabet; a name that is missing allows any character.
ALPHABETS = {
    "number": string.digits + "+-. ()/",
    "word": ALNUM + "_-",
    "dotted": ALNUM + "_-.",
    "base64": ALNUM + "+/=",
    "address": ALNUM + "._%+'-@:",
    "spaced": ALNUM + " ",
    "url": ALNUM + "-._~:/?#[]@!$&()*+,;=%",
    "printed": "".join(character for character in string.printable if not character.isspace()),
}
MAX_PATTERN = 500  # characters of an organization's pattern
MAX_TERM = 200
PATTERN_MEMORY = 1 << 20  # bytes that RE2 may use for the automaton of one pattern
OWN_PATTERN_MEMORY = 1 << 18  # the same for one of an organization, which has up to 200 of them
# The same for all own patterns of a rule together: some 3,500 instructions. Each one takes up to 7 ns for a byte of a
# text that was made to be slow, such as one of `a` and `b` for `(?:a|b).{300}c`.
OWN_MEMORY = 1 << 16
SET_MEMORY = 32 << 20
PROBE = "guardrail-probe-7f3a"  # a pattern of each set, and a text that it matches
OWN_LONGEST = 512  # characters of a match of an organization's own pattern
Edges = Literal["", "word", "number", "groups"]
GROUP_BEFORE = re.compile(r"[A-Z0-9]{4}[ -]$")
GROUP_AFTER = re.compile(r"[ -][0-9]{2,4}\b")


class Detector(Struct, frozen=True):
    """A detector of one kind of value; the fields are those of config/detectors.toml. `expression` is the compiled
    pattern, and `value` the number of the group that is the value."""

    name: str
    group: str
    title: str
    label: str
    pattern: str
    expression: Any
    value: int
    check: Check | None
    edges: Edges
    alphabet: str
    longest: int
    opening: str = ""

    def accepts(self, value: str, before: str, after: str) -> bool:
        """Return whether a match is a value, from the characters beside it and its check."""
        if self.edges and _continues(self.edges, before[-2:], after[:2]):
            return False
        if self.edges == "groups" and (GROUP_BEFORE.search(before) or GROUP_AFTER.match(after)):
            return False
        return self.check is None or self.check(value, before, after)


def _continues(edges: Edges, before: str, after: str) -> bool:
    """Return whether the text beside a match continues it, so that the match is a part of something else."""
    last, first = before[-1:], after[:1]
    if _is_word(last) or _is_word(first):
        return True
    if edges == "word":
        return False
    if last in (".", ",", "-", "/") and before[:1].isdigit() and len(before) == 2:
        return True
    return first in (".", ",", "-", "/", ":") and after[1:].isdigit()


def _is_word(character: str) -> bool:
    """Return whether a character continues a word. Only those of ASCII do: other scripts have no blanks beside
    numbers."""
    return character.isascii() and (character.isalnum() or character == "_")


@cache
def built_in() -> dict[str, Detector]:
    """Return the built-in detectors by name."""
    rows = tomllib.loads(TABLE.read_text())["detectors"]
    return {row["name"]: _read(row) for row in rows}


def groups() -> tuple[str, ...]:
    """Return the names of the groups of built-in detectors."""
    return tuple(dict.fromkeys(detector.group for detector in built_in().values()))


def expand(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the detectors for names of detectors and groups, each once. InvalidRequest."""
    known = built_in()
    found: dict[str, None] = {}
    for name in names:
        if name in known:
            found[name] = None
            continue
        members = [detector.name for detector in known.values() if detector.group == name]
        if not members:
            text = f"Unknown detector {name!r}. Groups: {', '.join(groups())}. Detectors: {', '.join(known)}."
            raise InvalidRequest(text, param="detectors")
        found.update(dict.fromkeys(members))
    return tuple(found)


def own_term(term: str) -> Detector:
    """Return the detector of an organization's term: these words in any case, with any white space between them."""
    words = term.split()
    if not words or len(term) > MAX_TERM:
        raise InvalidRequest(f"A term has 1 to {MAX_TERM} characters: {term[:40]!r}.", param="terms")
    pattern = "(?i)" + r"\s+".join(re2.escape(word) for word in words)
    before = r"\b" if words[0][0].isascii() and words[0][0].isalnum() else ""
    after = r"\b" if words[-1][-1].isascii() and words[-1][-1].isalnum() else ""
    return _own("term", "own term", f"{before}{pattern}{after}", "terms", len(term) * 2)


def own_pattern(pattern: str) -> Detector:
    """Return the detector of an organization's regular expression. InvalidRequest unless RE2 accepts it, within limits
    of size, and unless it matches at least one character."""
    if not pattern or len(pattern) > MAX_PATTERN:
        raise InvalidRequest(f"A pattern has 1 to {MAX_PATTERN} characters.", param="patterns")
    detector = _own("pattern", "own pattern", pattern, "patterns", OWN_LONGEST)
    if detector.expression.search("") is not None:
        raise InvalidRequest(f"The pattern {pattern[:80]!r} matches an empty text.", param="patterns")
    return detector


def own_patterns(patterns: Sequence[str]) -> list[Detector]:
    """Return the detectors of a rule's regular expressions. InvalidRequest as for each, and where they are too large
    together."""
    detectors = [own_pattern(pattern) for pattern in patterns]
    try:
        compile_pattern("|".join(f"(?:{pattern})" for pattern in patterns), OWN_MEMORY)
    except re2.error:
        text = "The patterns of the rule are too large together: use fewer or lower counts, such as {1,20}."
        raise InvalidRequest(text, param="patterns") from None
    return detectors


def _own(name: str, title: str, pattern: str, param: str, longest: int) -> Detector:
    try:
        expression = compile_pattern(pattern, OWN_PATTERN_MEMORY)
    except re2.error as error:
        text = f"RE2 cannot read the pattern {pattern[:80]!r}: {_reason(error)}."
        raise InvalidRequest(text, param=param) from None
    return Detector(name, "own", title, "TERM", pattern, expression, 0, None, "", "", longest)


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else "unknown reason"
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def compile_pattern(pattern: str, memory: int = PATTERN_MEMORY) -> Any:
    """Return the expression of RE2 for UTF-8 bytes and texts, whose automaton has at most `memory` bytes. re2.error."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory
    return re2.compile(pattern, options)


def compile_sets(patterns: Sequence[str], first: int = 0) -> list[tuple[int, Any]]:
    """Return sets of RE2 that say in one pass which of the patterns match a text, each with the number of its first
    pattern. A set that is too large for its memory would match nothing, so it is divided. InvalidRequest."""
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = SET_MEMORY
    compiled = re2.Set.SearchSet(options)
    for pattern in (*patterns, PROBE):
        compiled.Add(pattern)
    try:
        compiled.Compile()
        works = len(patterns) in (compiled.Match(PROBE.encode()) or ())
    except re2.error:
        works = False
    if works:
        return [(first, _WithoutProbe(compiled, len(patterns)))]
    if len(patterns) < 2:
        raise InvalidRequest(f"The pattern {patterns[0][:80]!r} is too large.", param="patterns")
    half = len(patterns) // 2
    return [*compile_sets(patterns[:half], first), *compile_sets(patterns[half:], first + half)]


class _WithoutProbe:
    """A set of RE2 with a last pattern that only proves that the set works."""

    def __init__(self, compiled: Any, count: int) -> None:
        self._compiled = compiled
        self._count = count

    def Match(self, data: bytes) -> list[int]:
        """Return the numbers of the patterns that match."""
        return [number for number in self._compiled.Match(data) or () if number < self._count]


def _read(row: dict[str, Any]) -> Detector:
    expression = compile_pattern(row["pattern"])
    return Detector(
        name=row["name"],
        group=row["group"],
        title=row["title"],
        label=row["label"],
        pattern=row["pattern"],
        expression=expression,
        value=row.get("value", 1 if expression.groups else 0),
        check=find_check(row["check"]),
        edges=row.get("edges", ""),
        alphabet=ALPHABETS[row["alphabet"]] + OTHERWISE if row["alphabet"] in ALPHABETS else "",
        longest=row["longest"],
        opening=row.get("opening", ""),
    )
