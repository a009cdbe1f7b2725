"""Texts of a request and of its answer under rules with an outside checker: the contents to check, and the findings."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from msgspec import Struct, structs

from gateway.guardrails.checkers import Checker, FoundValue, detector_of
from gateway.guardrails.guarded_texts import AnswerTexts, Findings, RequestEditor, refusal, unreadable
from gateway.guardrails.placeholders import Masks
from gateway.guardrails.rule_sets import CHANGES, GuardrailRule, Match, Place, RuleSet, changes_of, refusing
from gateway.guardrails.texts import READABLE_TYPES, UNREAD_MEDIA, TextReader
from gateway.guardrails.windows import CONTEXT, Replace
from gateway.neutral.parts import Media

UNTYPED = "application/octet-stream"
Role = str  # input, tool, answer: checkers judge what users write, what tools return and what models write separately
FIRST_CHECK = 200  # characters of a stream that are held back until the first check; twice as many each time
MOST_UNCHECKED = 2_000
TAIL = 100  # characters that are held back after a check, because a value may continue
MOST_LATE = 1_000_000  # characters of a streamed text that are kept for a check at its end


class Content(Struct, frozen=True):
    """A text to check, or with a `media_type` a file in base64."""

    text: str
    role: Role
    place: Place
    media_type: str = ""

    @property
    def digest(self) -> bytes:
        """Return the key of the content; it is the same in every place of its role."""
        data = f"{self.role}\0{self.media_type}\0{self.text}".encode("utf-8", "surrogatepass")
        return blake2b(data, digest_size=16).digest()


Found = dict[tuple[Checker, Role, str], tuple[FoundValue, ...]]


def reads_file(rules: RuleSet, media_type: str) -> bool:
    """Return whether rules, or their checkers, read a file of this type in a request."""
    kind = media_type.lower()
    if kind.startswith(READABLE_TYPES) and any(rule.places != ("answer",) for rule in rules.rules):
        return True
    return any(rule.checker.kind.takes(kind or UNTYPED) for rule in rules.request_checks if rule.checker)


def role_of(place: Place) -> Role:
    """Return the role of the texts in a place."""
    if place == "answer":
        return "answer"
    return "tool" if place == "tool_results" else "input"


class CheckCollector(TextReader):
    """Collects the contents that the checkers of some rules must read, each once."""

    def __init__(self, rules: Sequence[GuardrailRule]) -> None:
        self._rules = rules
        self.contents: dict[Checker, dict[tuple[Role, str], Content]] = {}

    def text(self, text: str, place: Place) -> str:
        """Add a text."""
        if text and not text.isspace():
            self._add(Content(text, role_of(place), place))
        return text

    def media(self, value: Media, place: Place) -> None:
        """Add a file."""
        if value.data:
            self._add(Content(value.data, role_of(place), place, value.media_type or UNTYPED))

    def _add(self, content: Content) -> None:
        for rule in self._rules:
            checker = rule.checker
            if checker is None or not rule.looks_in(content.place):
                continue
            if not content.media_type or checker.kind.takes(content.media_type):
                self.contents.setdefault(checker, {}).setdefault((content.role, content.text), content)


class CheckedRules:
    """Rules with checkers, and what their checkers found in the texts of one request or answer. `all_rules` knows the
    exceptions."""

    def __init__(self, rules: Sequence[GuardrailRule], all_rules: RuleSet, found: Mapping[Any, Any]) -> None:
        self.local = tuple(rules)
        self.rules = all_rules.rules
        self._all = all_rules
        self._found: Mapping[Any, tuple[FoundValue, ...]] = found

    def find(self, text: str, place: Place, masks: Masks | None = None) -> list[Match]:
        """Return the findings in a text, ordered by their start. A finding without a place cannot be masked or removed,
        so it blocks instead."""
        matches = [
            match
            for rule in self.local
            if rule.looks_in(place)
            for value in self._found.get((rule.checker, role_of(place), text), ())
            if (match := self._match(rule, value, text, masks)) is not None
        ]
        return sorted(matches, key=lambda match: (match.start, -match.end))

    def find_in_file(self, value: Media, place: Place) -> tuple[list[Match], GuardrailRule | None, bool]:
        """Return what was found in a file, the rule that refuses it because its checker takes no such file, and whether
        any checker did not read it."""
        matches: list[Match] = []
        unread = []
        for rule in self.local:
            checker = rule.checker
            if checker is None or not rule.looks_in(place):
                continue
            if value.data and checker.kind.takes(value.media_type or UNTYPED):
                found = self._found.get((checker, role_of(place), value.data), ())
                matches += [_whole(rule, one.kind, value.data) for one in found]
            else:
                unread.append(rule)
        return matches, refusing(unread, place != "answer"), bool(unread)

    def blocked(self, wanted: Mapping[Any, Mapping[Any, Content]]) -> tuple[Match, Place] | None:
        """Return what blocks any of the contents that were read."""
        for contents in wanted.values():
            for content in contents.values():
                for match in () if content.media_type else self.find(content.text, content.place):
                    if match.rule.acts == "block":
                        return match, content.place
        return None

    def refusing(self, inputs: bool) -> GuardrailRule | None:
        """Return the rule that refuses content that no checker reads; None without one."""
        return refusing(self.local, inputs)

    def _match(self, rule: GuardrailRule, value: FoundValue, text: str, masks: Masks | None) -> Match | None:
        start, end = max(0, value.start), min(value.end, len(text))
        if start >= end:
            return None if self._all.exempts(rule, text) else _whole(rule, value.kind, text)
        written = text[start:end]
        if (masks is not None and masks.owns(written)) or self._all.exempts(rule, written):
            return None
        assert rule.checker is not None
        return Match(start, end, rule, detector_of(rule.checker, value.kind))


def _whole(rule: GuardrailRule, kind: str, text: str) -> Match:
    """Return the match of a whole text or file."""
    assert rule.checker is not None
    acting = structs.replace(rule, action="block") if rule.acts in CHANGES else rule
    return Match(0, len(text), acting, detector_of(rule.checker, kind))


class CheckedEditor(RequestEditor):
    """Applies what checkers found to the texts and files of a request."""

    _rules: Any  # CheckedRules

    def across(self, texts: list[str], place: Place) -> list[str]:
        return texts

    def media(self, value: Media, place: Place) -> None:
        """Refuse or note a file by its findings."""
        self.files += 1
        matches, refuses, unread = self._rules.find_in_file(value, place)
        for match in matches:
            self._findings.add(match, place)
            if match.rule.acts == "block" and self.error is None:
                self.error = refusal(match, place)
        if unread:
            self._findings.add_unread("request", UNREAD_MEDIA)
        if refuses is not None and self.error is None:
            self.error = unreadable(refuses, UNREAD_MEDIA, answer=False)


class CollectedAnswer(AnswerTexts):
    """Collects the contents of an answer that checkers must read."""

    def __init__(self, collector: CheckCollector, texts: AnswerTexts) -> None:
        self._collector = collector
        self._hidden_from = texts._hidden_from

    def whole(self, text: str, escaped: bool | None = None, restored: bool = True) -> str:
        return self._collector.text(text, "answer")

    def unread(self, kind: str) -> None:
        """Content without text or bytes is read by no checker."""

    def media(self, value: Media) -> None:
        self._collector.media(value, "answer")


class CheckedAnswer(AnswerTexts):
    """Applies what checkers found to the texts of an answer, then restores masked values."""

    _rules: Any  # CheckedRules

    def whole(self, text: str, escaped: bool | None = None, restored: bool = True) -> str:
        matches = self._rules.find(text, "answer", self._masks)
        for match in matches:
            if match.rule.acts not in CHANGES:
                self.replace(match, match.value_in(text))
        pieces, start = [], 0
        for match in changes_of(matches):
            pieces += [text[start : match.start], self.replace(match, match.value_in(text))]
            start = match.end
        return self._restore("".join([*pieces, text[start:]]), escaped, restored)

    def unread(self, kind: str) -> None:
        self._refuse(self._rules.refusing(inputs=False), kind)

    def media(self, value: Media) -> None:
        matches, refuses, unread = self._rules.find_in_file(value, "answer")
        for match in matches:
            self.replace(match, "")
        if unread:
            self._refuse(refuses, UNREAD_MEDIA)

    def _refuse(self, rule: GuardrailRule | None, kind: str) -> None:
        self._findings.add_unread("answer", kind)
        if rule is not None:
            raise unreadable(rule, kind, answer=True)


# Returns the findings of checkers in a text of an answer. Unavailable where a rule blocks without its checker.
CheckText = Callable[[str], list[Match]]


class CheckedWindow:
    """Holds back one text of a stream until its checkers have read it (windows.Stage)."""

    def __init__(self, check: CheckText, replace: Replace) -> None:
        self._check = check
        self._replace = replace
        self._before = ""
        self._held = ""
        self._size = FIRST_CHECK
        self._noted: set[tuple[str, str]] = set()

    def feed(self, text: str) -> str:
        """Add a piece of text, and return what was checked."""
        self._held += text
        if len(self._held) < self._size:
            return ""
        self._size = min(2 * self._size, MOST_UNCHECKED)
        return self._release(final=False)

    def flush(self) -> str:
        """Return the rest."""
        return self._release(final=True) if self._held else ""

    def _release(self, final: bool) -> str:
        offset = len(self._before)
        text = self._before + self._held
        matches = [match for match in self._check(text) if match.end > offset]
        for match in matches:
            noted = (match.rule.id, match.detector.name)
            if match.rule.acts not in CHANGES and noted not in self._noted:
                self._noted.add(noted)
                self._replace(match, match.value_in(text))
        until = len(text) if final else max(offset, len(text) - TAIL)
        changes = changes_of(matches)
        for match in changes:
            if match.start < until < match.end:
                until = max(offset, match.start)
        pieces, start = [], offset
        for match in changes:
            if match.end <= until:
                pieces += [text[start : max(start, match.start)], self._replace(match, match.value_in(text))]
                start = match.end
        pieces.append(text[start:until])
        self._before = text[max(0, until - CONTEXT) : until]
        self._held = text[until:]
        return "".join(pieces)


class LateCheck:
    """Reads a text of a stream as it passes, and checks it at its end, where nothing can be blocked (windows.Stage)."""

    def __init__(self, check: CheckText, findings: Findings) -> None:
        self._check = check
        self._findings = findings
        self._text: list[str] = []
        self._size = 0

    def feed(self, text: str) -> str:
        """Return the text as it is."""
        if self._size < MOST_LATE:
            self._text.append(text)
            self._size += len(text)
        elif text:
            self._findings.add_unread("answer", "a long text")
        return text

    def flush(self) -> str:
        """Check what has passed."""
        text = "".join(self._text)[:MOST_LATE]
        self._text, self._size = [], 0
        if text and not text.isspace():
            for match in self._check(text):
                acts = "warn" if match.rule.acts in ("block", *CHANGES) else match.rule.action
                self._findings.add(structs.replace(match, rule=structs.replace(match.rule, action=acts)), "answer")
        return ""
