"""Rules of guardrails: what they look for, where, and what happens to a value that is found."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Literal, get_args

from msgspec import Struct

from gateway.guardrails.checkers import Checker
from gateway.guardrails.detectors import Detector, built_in, expand, own_patterns, own_term
from gateway.guardrails.placeholders import Masks
from gateway.guardrails.scanning import Scanner

Place = Literal["prompt", "system", "history", "tool_arguments", "tool_results", "answer"]
PLACES: tuple[Place, ...] = get_args(Place)
INPUTS: tuple[Place, ...] = PLACES[:-1]
Action = Literal["block", "mask", "remove", "warn", "log"]
ACTIONS: tuple[Action, ...] = get_args(Action)  # the strongest first
CHANGES: tuple[Action, ...] = ("mask", "remove")
Unread = Literal["refuse", "pass"]
UNREAD: tuple[Unread, ...] = get_args(Unread)
EVERY_TOOL = "*"


class GuardrailRule(Struct, frozen=True):
    """A rule. It looks for values of `detectors` (names of detectors or groups), for `terms` and `patterns`, in
    `places`, in requests for `models` (names, * for any characters; none: all).

    `unread`: what happens to a request with content that cannot be read, such as an image; "" for the default of the
    action. `contact` is whom callers
    ask. `probation`: it acts on nothing and is only recorded. `hidden_from` are names of tools whose arguments keep
    placeholders ("*": all tools). `exceptions` are fingerprints of values that are no findings. `checker` looks for
    values instead of detectors, terms and patterns.
    """

    id: str
    name: str
    action: Action
    detectors: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    places: tuple[Place, ...] = INPUTS
    models: tuple[str, ...] = ()
    unread: Unread | Literal[""] = ""
    contact: str = ""
    probation: bool = False
    hidden_from: tuple[str, ...] = ()
    exceptions: frozenset[str] = frozenset()
    checker: Checker | None = None

    @property
    def on_unread(self) -> Unread:
        """What happens to content that cannot be read: by default a rule that blocks refuses it."""
        return self.unread or ("refuse" if self.action == "block" else "pass")

    @property
    def acts(self) -> Action:
        """The action that is carried out: on probation only "log"."""
        return "log" if self.probation else self.action

    def looks_in(self, place: Place) -> bool:
        """Return whether the rule applies in `place`. What was a prompt is history in the next turn, so a rule for
        prompts applies there too."""
        return place in self.places or (place == "history" and "prompt" in self.places)

    def applies_to(self, names: Iterable[str]) -> bool:
        """Return whether the rule applies to a model that has any of these names."""
        return not self.models or any(_is_named(pattern, name) for pattern in self.models for name in names)


def _is_named(pattern: str, name: str) -> bool:
    """Return whether `name` fits a pattern in which * is any text; linear, unlike a regular expression."""
    first, *rest = pattern.lower().split("*")
    name = name.lower()
    if not rest:
        return name == first
    if not name.startswith(first):
        return False
    place = len(first)
    for piece in rest[:-1]:
        found = name.find(piece, place)
        if found < 0:
            return False
        place = found + len(piece)
    return len(name) - place >= len(rest[-1]) and name.endswith(rest[-1])


class Match(Struct, frozen=True):
    """A value that a rule found: its place in a text, in characters. `value` is the value if it is written in another
    way there, such as with escapes."""

    start: int
    end: int
    rule: GuardrailRule
    detector: Detector
    value: str = ""

    def value_in(self, text: str) -> str:
        """Return the value that was found in `text`."""
        return self.value or text[self.start : self.end]


class RuleSet:
    """The rules for some requests, with one scanner for all that they look for. `fingerprint` hashes a value for the
    comparison with exceptions."""

    def __init__(self, rules: Sequence[GuardrailRule], fingerprint: Callable[[str], str]) -> None:
        self.rules = tuple(rules)
        # Rules with an outside checker look for nothing here (guardrails/checked_texts.py).
        self.local = tuple(rule for rule in rules if rule.checker is None)
        self.request_checks = tuple(rule for rule in rules if rule.checker and rule.places != ("answer",))
        self.answer_checks = tuple(rule for rule in rules if rule.checker and rule.looks_in("answer"))
        # Own patterns can take much longer than the built-in detectors, so that a thread searches for them.
        self.slow = any(rule.patterns for rule in rules)
        self._fingerprint = fingerprint
        detectors: list[Detector] = []
        users: list[list[GuardrailRule]] = []
        numbers: dict[tuple[str, str], int] = {}
        for rule in rules:
            for detector in detectors_of(rule):
                number = numbers.setdefault((detector.name, detector.pattern), len(detectors))
                if number == len(detectors):
                    detectors.append(detector)
                    users.append([])
                users[number].append(rule)
        self.scanner = Scanner(detectors)
        self._users = tuple(map(tuple, users))

    @cached_property
    def reads_answers(self) -> bool:
        """Whether a rule looks for values in answers."""
        return any(rule.looks_in("answer") for rule in self.local)

    @cached_property
    def answer_detectors(self) -> tuple[Detector, ...]:
        """The detectors of rules for answers. Streams hold back their values."""
        return tuple(
            detector
            for detector, users in zip(self.scanner.detectors, self._users, strict=True)
            if any(rule.looks_in("answer") for rule in users)
        )

    def refusing(self, inputs: bool) -> GuardrailRule | None:
        """Return the rule that refuses content that cannot be read, of requests (`inputs`) or of answers; None without
        one."""
        return refusing(self.local, inputs)

    def chosen_for(self, names: Iterable[str]) -> tuple[GuardrailRule, ...]:
        """Return the rules that apply to a model with any of these names."""
        known = tuple(names)
        return tuple(rule for rule in self.rules if rule.applies_to(known))

    def fingerprint_of(self, value: str) -> str:
        """Return the hash by which an exception names a value."""
        return self._fingerprint(value)

    def exempts(self, rule: GuardrailRule, value: str) -> bool:
        """Return whether a value is an exception of a rule."""
        return bool(rule.exceptions) and self._fingerprint(value) in rule.exceptions

    def find(self, text: str, place: Place, masks: Masks | None = None, once: bool = False) -> list[Match]:
        """Return the values that rules for `place` find in a text, ordered by their start. Placeholders of `masks` are
        no values. `once`: the text does not come again."""
        found: list[Match] = []
        for finding in self.scanner.scan_once(text) if once else self.scanner.scan(text):
            value = finding.value or text[finding.start : finding.end]
            if masks is not None and masks.owns(value):
                continue
            for rule in self._users[finding.detector]:
                if rule.looks_in(place) and not self.exempts(rule, value):
                    detector = self.scanner.detectors[finding.detector]
                    found.append(Match(finding.start, finding.end, rule, detector, finding.value))
        return found


def refusing(rules: Iterable[GuardrailRule], inputs: bool) -> GuardrailRule | None:
    """Return the rule that refuses content that cannot be read, of requests (`inputs`) or of answers; None without
    one."""
    for rule in rules:
        looks = rule.places != ("answer",) if inputs else rule.looks_in("answer")
        if rule.on_unread == "refuse" and not rule.probation and looks:
            return rule
    return None


def detectors_of(rule: GuardrailRule) -> list[Detector]:
    """Return the detectors of a rule. InvalidRequest for unknown names and patterns that cannot be used."""
    known = built_in()
    return [
        *(known[name] for name in expand(rule.detectors)),
        *map(own_term, rule.terms),
        *own_patterns(rule.patterns),
    ]


def changes_of(matches: Sequence[Match]) -> list[Match]:
    """Return the matches that change a text, without overlaps: of those that overlap, one remains for the whole part,
    with the strongest action."""
    changed: list[Match] = []
    for match in matches:
        if match.rule.acts not in CHANGES:
            continue
        last = changed[-1] if changed else None
        if last is None or match.start >= last.end:
            changed.append(match)
            continue
        first = min(last, match, key=lambda one: ACTIONS.index(one.rule.acts))
        is_whole = (first.start, first.end) == (last.start, max(last.end, match.end))
        value = first.value if is_whole else ""
        changed[-1] = Match(last.start, max(last.end, match.end), first.rule, first.detector, value)
    return changed
