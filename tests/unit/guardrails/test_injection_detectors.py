"""Heuristics for injections and jailbreaks: measured on a labelled set of attacks and of harmless texts like them."""

import os
from collections import Counter
from typing import NamedTuple

import pytest
from support.labelled_attacks import ATTACKS, attacks, harmless
from support.labelled_texts import negatives

from gateway.configuration.settings import ROOT
from gateway.guardrails.detectors import built_in
from gateway.guardrails.scanning import Scanner

PAGE = ROOT / "docs/guardrails.md"
GROUP = "injection"
NEGATIVES = 6000
LEAST_PRECISION = 0.95
# Heuristics know usual wordings only; the labelled set has many that are not.
LEAST_RECALL = 0.5
BEGIN, END = "<!-- injection detectors: begin -->\n", "<!-- injection detectors: end -->\n"


class Measured(NamedTuple):
    texts: int
    precision: float
    recall: float


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return Scanner([detector for detector in built_in().values() if detector.group == GROUP])


@pytest.fixture(scope="module")
def measured(scanner: Scanner) -> dict[str, Measured]:
    """Return precision and recall of each detector by whole texts. An attack of another kind is no error."""
    texts: Counter[str] = Counter()
    hits: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for labelled in [*attacks(1), *harmless()]:
        found = names_in(scanner, labelled.text)
        texts[labelled.detector] += 1
        hits[labelled.detector] += labelled.detector in found
        if not labelled.detector:
            wrong.update(found)
    return {
        name: Measured(texts[name], hits[name] / (hits[name] + wrong[name]), hits[name] / texts[name])
        for name in ATTACKS
    }


def names_in(scanner: Scanner, text: str) -> set[str]:
    return {scanner.detectors[found.detector].name for found in scanner.scan(text)}


def test_every_heuristic_is_measured(scanner: Scanner) -> None:
    assert [detector.name for detector in scanner.detectors] == list(ATTACKS)


@pytest.mark.parametrize("name", ATTACKS)
def test_heuristic_finds_usual_attacks_and_few_harmless_texts(name: str, measured: dict[str, Measured]) -> None:
    assert measured[name].precision >= LEAST_PRECISION
    assert measured[name].recall >= LEAST_RECALL


def test_heuristics_find_nothing_in_values_hashes_and_code(scanner: Scanner) -> None:
    assert [labelled.text for labelled in negatives(2, NEGATIVES) if names_in(scanner, labelled.text)] == []


def test_lengths_of_heuristics_hold_for_their_findings(scanner: Scanner) -> None:
    for labelled in attacks(2):
        for found in scanner.scan(labelled.text):
            assert found.end - found.start <= scanner.detectors[found.detector].longest


def test_the_page_has_the_measured_table_of_heuristics(measured: dict[str, Measured], scanner: Scanner) -> None:
    rows = ["| Detector | Finds | Attacks in the set | Precision | Recall |\n", "|---|---|---|---|---|\n"]
    for detector in scanner.detectors:
        texts, precision, recall = measured[detector.name]
        rows.append(f"| `{detector.name}` | {detector.title} | {texts} | {precision:.3f} | {recall:.3f} |\n")
    text = PAGE.read_text()
    start = text.index(BEGIN) + len(BEGIN)
    end = text.index(END)
    if os.environ.get("WRITE_GOLDENS"):
        PAGE.write_text(text[:start] + "".join(rows) + text[end:])
        return
    assert text[start:end] == "".join(rows)
