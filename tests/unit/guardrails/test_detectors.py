"""Detectors: precision and recall on a labelled set, and what organizations add."""

import os
from collections import Counter
from pathlib import Path

import pytest
from support.labelled_texts import MAKERS, LabelledText, negatives, positives

from gateway.configuration.settings import ROOT
from gateway.errors import InvalidRequest
from gateway.guardrails import detectors, scanning
from gateway.guardrails.detectors import OWN_LONGEST, built_in, expand, own_pattern, own_patterns, own_term
from gateway.guardrails.rule_sets import GuardrailRule, RuleSet
from gateway.guardrails.scanning import Scanner

PAGE = ROOT / "docs/guardrails.md"
POSITIVES_EACH = 60
NEGATIVES = 6000
HEURISTICS = "injection"  # the group of detectors that test_injection_detectors.py measures
# Detectors with check digits; the others are found by their form, and measured by the same numbers.
LEAST_PRECISION, LEAST_RECALL = 0.98, 0.95
BEGIN, END = "<!-- detectors: begin -->\n", "<!-- detectors: end -->\n"


@pytest.fixture(scope="module")
def measured() -> dict[str, tuple[float, float]]:
    """Return precision and recall of each detector."""
    scanner = Scanner([detector for detector in built_in().values() if detector.group != HEURISTICS])
    hits: Counter[str] = Counter()
    misses: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for labelled in [*positives(1, POSITIVES_EACH), *negatives(2, NEGATIVES)]:
        found = found_in(scanner, labelled)
        if labelled.detector:
            (hits if (labelled.detector, labelled.value) in found else misses)[labelled.detector] += 1
        wrong.update(name for name, value in found if not overlaps(value, labelled.value))
    return {
        name: (hits[name] / max(1, hits[name] + wrong[name]), hits[name] / (hits[name] + misses[name]))
        for name in MAKERS
    }


def overlaps(value: str, labelled: str) -> bool:
    return bool(labelled) and (value in labelled or labelled in value)


def found_in(scanner: Scanner, labelled: LabelledText) -> list[tuple[str, str]]:
    text = labelled.text
    return [(scanner.detectors[found.detector].name, text[found.start : found.end]) for found in scanner.scan(text)]


def test_every_detector_is_measured() -> None:
    assert set(MAKERS) == {name for name, detector in built_in().items() if detector.group != HEURISTICS}


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_detector_finds_its_values_and_no_others(name: str, measured: dict[str, tuple[float, float]]) -> None:
    precision, recall = measured[name]
    assert precision >= LEAST_PRECISION
    assert recall >= LEAST_RECALL


def test_the_page_has_the_measured_table(measured: dict[str, tuple[float, float]]) -> None:
    rows = ["| Detector | Group | Finds | Precision | Recall |\n", "|---|---|---|---|---|\n"]
    for detector in built_in().values():
        if detector.group == HEURISTICS:
            continue
        precision, recall = measured[detector.name]
        rows.append(f"| `{detector.name}` | {detector.group} | {detector.title} | {precision:.3f} | {recall:.3f} |\n")
    text = PAGE.read_text()
    start = text.index(BEGIN) + len(BEGIN)
    end = text.index(END)
    if os.environ.get("WRITE_GOLDENS"):
        Path(PAGE).write_text(text[:start] + "".join(rows) + text[end:])
        return
    assert text[start:end] == "".join(rows)


def test_group_names_all_of_its_detectors() -> None:
    assert set(expand(["secrets", "email"])) == {"email"} | {
        detector.name for detector in built_in().values() if detector.group == "secrets"
    }
    with pytest.raises(InvalidRequest, match="Unknown detector 'nothing'"):
        expand(["nothing"])


def test_own_term_is_found_in_any_case_and_spacing_but_not_inside_of_words() -> None:
    scanner = Scanner([own_term("Project Falcon"), own_term("ACME+")])
    text = "PROJECT\n falcon met ProjectFalcon and project falcons at acme+."
    assert [text[found.start : found.end] for found in scanner.scan(text)] == ["PROJECT\n falcon", "acme+"]


@pytest.mark.parametrize("pattern", ["(", "a*", r"(?=x)", "x" * 501, "", r"(\w+)\1", "((a{900}){900}){900}"])
def test_own_pattern_that_cannot_be_used_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRequest):
        own_pattern(pattern)


def test_own_patterns_are_refused_where_they_are_slow_together() -> None:
    assert len(own_patterns([r"PRJ-[0-9]{4,12}", r"[A-Z]{2}\d{6,20}"])) == 2
    with pytest.raises(InvalidRequest, match="too large together"):
        own_patterns([r"(?:a|b|c).{900}cnd"])
    with pytest.raises(InvalidRequest, match="too large together"):
        own_patterns([rf"{letter}.{{100}}x" for letter in "abcdefghij"])


def test_own_pattern_takes_linear_time_on_hostile_text() -> None:
    scanner = Scanner([own_pattern(r"(a+)+$"), own_pattern(r"(x+x+)+y")])
    text = "a" * 200_000 + "!" + "x" * 200_000
    assert scanner.scan(text) == ()


def test_many_large_patterns_are_all_found() -> None:
    patterns = [f"value{number}x(?:[a-z0-9]{{1,90}}-){{1,9}}[a-z]{{1,60}}end{number}" for number in range(40)]
    scanner = Scanner([own_pattern(pattern) for pattern in patterns])
    for number in (0, 17, 39):
        text = f"a value{number}xabc-def-ghiend{number} b"
        assert [found.detector for found in scanner.scan(text)] == [number]


def test_set_that_is_too_large_is_divided_and_never_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    known = tuple(detector for detector in built_in().values() if detector.group != HEURISTICS)
    whole = Scanner(known)
    monkeypatch.setattr(detectors, "SET_MEMORY", 1 << 18)
    divided = Scanner(known)
    assert len(divided._sets) > len(whole._sets)
    for labelled in positives(11, 3):
        assert divided.scan(labelled.text) == whole.scan(labelled.text)


def test_value_is_found_behind_characters_of_several_bytes() -> None:
    scanner = Scanner([built_in()["email"]])
    text = "Grüße 🙂 an anna.meyer@mail.test und 日本 ben@corp.io \ud800 end " + "x" * 80
    assert [text[found.start : found.end] for found in scanner.scan(text)] == ["anna.meyer@mail.test", "ben@corp.io"]
    assert scanner.scan(text) == scanner.scan(str(text))


def test_lengths_of_detectors_hold_for_their_values() -> None:
    for labelled in positives(3, 40):
        detector = built_in()[labelled.detector]
        assert len(labelled.value) <= detector.longest, detector.name
        assert not detector.alphabet or set(labelled.value) <= set(detector.alphabet), detector.name
    assert own_pattern("abc").longest == OWN_LONGEST


def test_many_texts_that_only_look_like_a_value_hide_none(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = RuleSet([GuardrailRule("g", "Cards", "block", ("payment_card",))], str)
    decoys = "4111 1111 1111 1112, " * 12_000
    card = "4111 1111 1111 1111"
    found = rules.find(f"{decoys} {card}", "prompt")
    assert [match.end - match.start for match in found] == [len(card)]
    monkeypatch.setattr(scanning, "MAX_CANDIDATES", 10_000)
    text = f"{decoys} {card}."
    (rest,) = rules.find(text, "prompt")  # what was not read is refused
    assert rest.end == len(text) and rest.start < len(decoys)
