"""Counts in sentences: one request is not "1 requests", in no template of the console."""

import re

import pytest

from gateway.configuration.settings import ROOT
from gateway.runtime.plurals import many, plural

TEMPLATES = sorted((ROOT / "gateway" / "surfaces" / "console" / "templates").rglob("*.html"))
# A counted expression, and the noun after it without a filter that looks at the count.
COUNTED = re.compile(r"\{\{ [^{}]*(?:\|length|\|count|_count|Count) \}\} (?:more )?([a-z]{3,}[^s ]s)\b")
# Counts that are always many, or whose noun is the unit of a figure.
UNITS = {"tokens", "characters", "bytes", "days"}


@pytest.mark.parametrize(("count", "text"), [(0, "0 lines"), (1, "1 line"), (2, "2 lines"), (50_000, "50,000 lines")])
def test_a_noun_has_the_number_of_its_count(count: int, text: str) -> None:
    assert many(count, "line") == text
    assert plural(count, "is", "are") == ("is" if count == 1 else "are")


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_template_writes_the_plural_of_any_count(path) -> None:
    text = path.read_text()
    found = []
    for match in COUNTED.finditer(text):
        condition = text[max(0, match.start() - 60) : match.start()]
        if match[1] not in UNITS and not re.search(r"> 1 %\}(, )?$", condition):
            found.append(match[0])
    assert not found
