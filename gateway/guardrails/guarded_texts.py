"""Guardrails on the texts of one request and of its answer: findings, refusals, masks and their restoring."""

from bisect import bisect, bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

from msgspec import structs

from gateway.errors import ContentRefused
from gateway.guardrails.placeholders import OWN, REMOVED, Masks
from gateway.guardrails.rule_sets import ACTIONS, EVERY_TOOL, GuardrailRule, Match, Place, RuleSet, changes_of
from gateway.guardrails.texts import UNREAD_MEDIA, TextWalk
from gateway.guardrails.windows import Replace, RestoredText, Stage, TextWindow
from gateway.neutral.parts import Media
from gateway.neutral.request import WholeResult

BLOCKED = "guardrail_blocked"
NOT_READABLE = "guardrail_unreadable"
MAX_WARNINGS = 20
SEAM = 512  # characters beside the end of a text in which a value is found that the next text continues
MAX_ROWS = 50  # of findings that are logged and stored of one request
# Fields of every result that no model wrote.
OWN_FIELDS = frozenset(("usage", "model", "upstream_id", "service_tier", "warnings", "large"))


class FoundValues(NamedTuple):
    """How many values of a kind a rule found in a place, and what it did; on probation, what it would have done."""

    rule: str
    kind: str
    place: str
    action: str
    values: int


class Findings:
    """The findings in one request: counts by rule, kind of value, place and action, never a value. `unread`
    are the kinds of content that could not be read, by direction ("request", "answer"); `failed` are rules whose
    checker failed and that warn then, by whether it was for the answer."""

    def __init__(self) -> None:
        self.failed: set[tuple[GuardrailRule, bool]] = set()
        self.counts: dict[tuple[GuardrailRule, str, Place], int] = {}
        self.unread: dict[str, set[str]] = {}

    def add(self, match: Match, place: Place) -> None:
        key = (match.rule, match.detector.name, place)
        self.counts[key] = self.counts.get(key, 0) + 1

    def add_unread(self, direction: str, kind: str) -> None:
        self.unread.setdefault(direction, set()).add(kind)

    def found(self) -> "list[FoundValues]":
        """Return what was found, for logs and metrics: at most MAX_ROWS rows, those with the strongest actions."""
        counts = list(self.counts.items())
        if len(counts) > MAX_ROWS:
            counts = sorted(counts, key=lambda entry: ACTIONS.index(entry[0][0].acts))[:MAX_ROWS]
        return [
            FoundValues(rule.id, kind, place, f"would {rule.action}" if rule.probation else rule.action, count)
            for (rule, kind, place), count in counts
        ]

    def not_checked(self) -> list[str]:
        """Return the content that no rule could read, for the log."""
        return [f"{direction}: {kind}" for direction, kinds in self.unread.items() for kind in sorted(kinds)]

    def warnings(self, answer: bool) -> list[str]:
        """Return the warnings of rules for the answer or for the request."""
        texts = [
            f"guardrail: the rule {rule.name!r} found {kind} in {place}."
            for rule, kind, place in self.counts
            if rule.acts == "warn" and (place == "answer") is answer
        ]
        texts += [
            f"guardrail: the rule {rule.name!r} could not be checked." for rule, of in self.failed if of is answer
        ]
        return texts[:MAX_WARNINGS]


def refusal(match: Match, place: Place) -> ContentRefused:
    """Return the error for a value that a rule blocks."""
    rule = match.rule
    text = f"The guardrail {rule.name!r} blocks this request: it found {match.detector.title} in {SHOWN[place]}."
    return ContentRefused(f"{text}{_ask(rule)}", code=BLOCKED, details=_details(rule, place, match.detector.name))


def unreadable(rule: GuardrailRule, kind: str, answer: bool) -> ContentRefused:
    """Return the error for content that a rule would have to read and cannot."""
    what = "answer of this operation" if answer else "request"
    text = f"The guardrail {rule.name!r} refuses what it cannot read: the {what} contains {kind}."
    advice = f"{text} Send it as text, or let the rule pass such content (unread).{_ask(rule)}"
    return ContentRefused(advice, code=NOT_READABLE, details=_details(rule, "answer" if answer else "request", kind))


SHOWN: dict[Place, str] = {
    "prompt": "the prompt",
    "system": "the instructions or tools",
    "history": "an earlier message",
    "tool_arguments": "the arguments of a tool call",
    "tool_results": "the result of a tool",
    "answer": "the answer",
}


def _ask(rule: GuardrailRule) -> str:
    return f" Ask {rule.contact} about this rule." if rule.contact else ""


def _details(rule: GuardrailRule, place: str, kind: str) -> dict[str, str]:
    contact = {"guardrail_contact": rule.contact} if rule.contact else {}
    return {"guardrail": rule.name, "guardrail_place": place, "guardrail_kind": kind, **contact}


class AppliedRules(Protocol):
    """The rules that are applied to texts: a RuleSet, or rules with checkers (checked_texts.CheckedRules)."""

    @property
    def rules(self) -> tuple[GuardrailRule, ...]: ...
    @property
    def local(self) -> tuple[GuardrailRule, ...]: ...
    def find(self, text: str, place: Place, masks: Masks | None = None) -> list[Match]: ...
    def refusing(self, inputs: bool) -> GuardrailRule | None: ...


class RequestEditor:
    """Applies rules to the texts of a request (texts.TextEditor). `error` refuses the request for its first value that
    is blocked; `growth` is by how many bytes the texts have become longer, `files` the number of files without text."""

    def __init__(self, rules: AppliedRules, masks: Masks, findings: Findings) -> None:
        self._rules = rules
        self._masks = masks
        self._findings = findings
        self.error: ContentRefused | None = None
        self.growth = 0
        self.files = 0

    def text(self, text: str, place: Place) -> str:
        """Return the text as it may be sent."""
        if not text:
            return text
        matches = self._rules.find(text, place, self._masks)
        if not matches:
            return text
        for match in matches:
            self._findings.add(match, place)
            if match.rule.acts == "block" and self.error is None:
                self.error = refusal(match, place)
        return self._edit(text, changes_of(matches))

    def across(self, texts: list[str], place: Place) -> list[str]:
        """Return texts that follow each other as they may be sent, where a value begins in one and ends in another: its
        placeholder is in the first. What overlaps a value of one text is none."""
        whole = "".join(texts)
        ends = list(accumulate(map(len, texts)))
        found = [
            match
            for start, end in _seams(ends)
            for match in _moved(self._rules.find(whole[start:end], place, self._masks), start)
            if bisect(ends, match.start) != bisect_left(ends, match.end)
        ]
        if found:
            inside = [
                match
                for text, end in zip(texts, ends, strict=True)
                for match in _moved(self._rules.find(text, place, self._masks), end - len(text))
            ]
            found = _beside(found, inside)
        if not found:
            return texts
        for match in found:
            self._findings.add(match, place)
            if match.rule.acts == "block" and self.error is None:
                self.error = refusal(match, place)
        edited = list(texts)
        for match in reversed(changes_of(found)):
            first, last = bisect(ends, match.start), bisect_left(ends, match.end)
            written = self._write(match, match.value_in(whole))
            begin = ends[first] - len(texts[first])
            edited[last] = edited[last][match.end - ends[last] + len(texts[last]) :]
            edited[first + 1 : last] = [""] * (last - first - 1)
            edited[first] = texts[first][: match.start - begin] + written
        return edited

    def signed(self, text: str, place: Place) -> str | None:
        """Return the text of a signed part: as the provider wrote it, which is with the placeholders of values that the
        session knows. None if it has other values, because a changed text does not fit its signature."""
        changes = changes_of(self._rules.find(text, place, self._masks))
        if not changes:
            self.text(text, place)  # a value may be blocked
            return text
        for match in changes:
            value = match.value_in(text)
            if match.rule.acts != "mask" or self._masks.values.get(self._masks.ident_of(value)) != value:
                return None
        return self.text(text, place)

    def media(self, value: Media, place: Place) -> None:
        """Refuse or note a file that cannot be read."""
        self.files += 1
        self.unread(UNREAD_MEDIA)

    def unread(self, kind: str) -> None:
        """Refuse or note content that cannot be read."""
        if not self._rules.local:
            return
        self._findings.add_unread("request", kind)
        rule = self._rules.refusing(inputs=True)
        if rule is not None and self.error is None:
            self.error = unreadable(rule, kind, answer=False)

    def _edit(self, text: str, changes: Sequence[Match]) -> str:
        if not changes:
            return text
        pieces = []
        start = 0
        for match in changes:
            pieces += [text[start : match.start], self._write(match, match.value_in(text))]
            start = match.end
        return "".join([*pieces, text[start:]])

    def _write(self, match: Match, value: str) -> str:
        """Return what is written instead of a value."""
        if OWN.search(value):
            value = self._masks.restore(value)  # a checker saw the placeholder of another rule
        written = self._masks.mask(value, match.detector.label) if match.rule.acts == "mask" else REMOVED
        self.growth += max(0, len(written) - len(value))
        return written


def _seams(ends: Sequence[int]) -> list[tuple[int, int]]:
    """Return the parts of joined texts in which a value may reach over an end, without overlaps."""
    seams: list[tuple[int, int]] = []
    for end in ends[:-1]:
        start = max(0, end - SEAM)
        if seams and start <= seams[-1][1]:
            seams[-1] = (seams[-1][0], end + SEAM)
        else:
            seams.append((start, end + SEAM))
    return seams


def _beside(matches: Sequence[Match], others: Sequence[Match]) -> list[Match]:
    """Return the matches that overlap none of the others, which are ordered by their start."""
    starts = [other.start for other in others]
    furthest = list(accumulate((other.end for other in others), max))
    kept = []
    for match in matches:
        before = bisect_left(starts, match.end)
        if not before or furthest[before - 1] <= match.start:
            kept.append(match)
    return kept


def _moved(matches: Sequence[Match], offset: int) -> list[Match]:
    return [structs.replace(match, start=match.start + offset, end=match.end + offset) for match in matches]


# Makes what holds back a text of a stream until it was checked.
MakeCheck = Callable[[Replace], Stage]


class AnswerTexts:
    """Applies rules to the texts of an answer, then restores masked values. `escaped`: text is JSON. `hidden_from` are
    the names of tools that get no values. `restores`: whether values are restored here."""

    def __init__(
        self,
        rules: AppliedRules,
        masks: Masks,
        findings: Findings,
        escaped: bool,
        restores: bool = True,
        checks: Sequence[MakeCheck] = (),
    ) -> None:
        self._rules = rules
        self._read = rules if isinstance(rules, RuleSet) and rules.reads_answers else None
        self._restores = restores
        self._checks = checks
        self._masks = masks
        self._findings = findings
        self._escaped = escaped
        self._hidden_from = frozenset(name for rule in rules.rules for name in rule.hidden_from)

    def gets_values(self, tool: str) -> bool:
        """Return whether the arguments of a tool get the values of placeholders; not those of a tool without a name,
        where a rule hides values from any."""
        if not tool:
            return not self._hidden_from
        return EVERY_TOOL not in self._hidden_from and tool not in self._hidden_from

    def replace(self, match: Match, value: str) -> str:
        """Record a value of the answer, and return what is written instead. ContentRefused where it is blocked."""
        self._findings.add(match, "answer")
        if match.rule.acts == "block":
            raise refusal(match, "answer")
        if match.rule.acts == "mask":
            return f"{match.detector.label}_{self._masks.ident_of(value)}"
        return REMOVED if match.rule.acts == "remove" else value

    def whole(self, text: str, escaped: bool | None = None, restored: bool = True) -> str:
        """Return a whole text of the answer. ContentRefused."""
        if self._read is not None:
            window = TextWindow(self._read, self.replace, self._masks)
            text = window.feed(text) + window.flush()
        return self._restore(text, escaped, restored)

    def unread(self, kind: str) -> None:
        """Refuse or note content that cannot be read. ContentRefused."""
        if not self._rules.local:
            return
        self._findings.add_unread("answer", kind)
        rule = self._rules.refusing(inputs=False)
        if rule is not None:
            raise unreadable(rule, kind, answer=True)

    def media(self, value: Media) -> None:
        """Refuse or note a file that cannot be read. ContentRefused."""
        self.unread(UNREAD_MEDIA)

    def stream(self, escaped: bool | None = None, restored: bool = True) -> "AnswerStream":
        """Return what handles one text that arrives in pieces."""
        stages: list[Stage] = [TextWindow(self._read, self.replace, self._masks)] if self._read is not None else []
        stages += [make(self.replace) for make in self._checks]
        if restored and self._masks.values:
            stages.append(RestoredText(self._masks, self._escaped if escaped is None else escaped))
        return AnswerStream(stages)

    def _restore(self, text: str, escaped: bool | None, restored: bool) -> str:
        if restored and self._restores:
            return self._masks.restore(text, self._escaped if escaped is None else escaped)
        return text


class AnswerStream:
    """One text of a streamed answer, and what it passes through."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = stages

    def feed(self, text: str) -> str:
        """Add a piece of text, and return what may be sent now. ContentRefused."""
        for stage in self._stages:
            text = stage.feed(text)
        return text

    def flush(self) -> str:
        """Return the rest. ContentRefused."""
        text = ""
        for stage in self._stages:
            text = stage.feed(text) + stage.flush()
        return text


class AnswerEditor:
    """Edits the texts of a whole answer (texts.TextEditor)."""

    def __init__(self, texts: AnswerTexts) -> None:
        self._texts = texts

    def across(self, texts: list[str], place: Place) -> list[str]:
        return texts

    def text(self, text: str, place: Place) -> str:
        return self._texts.whole(text) if text else text

    def signed(self, text: str, place: Place) -> str | None:
        return self.text(text, place)

    def unread(self, kind: str) -> None:
        self._texts.unread(kind)

    def media(self, value: Media, place: Place) -> None:
        self._texts.media(value)


def edit_answer(value: Any, texts: AnswerTexts) -> Any:
    """Return an answer of any operation with its texts edited. ContentRefused."""
    walk = TextWalk(AnswerEditor(texts))
    return (
        walk.edit_fields(value, "answer", OWN_FIELDS) if isinstance(value, WholeResult) else walk.edit(value, "answer")
    )
