"""Limits on style: sentences that a stranger can read, and plain statements.

The limits are those of well-known Python projects (Flask, Werkzeug, HTTPX, Starlette, Authlib), with some room. A
finding names its file and line; rewrite the sentence or the statement.
"""

import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
from support.python_sources import MIN_SENTENCE_LENGTH, read_source

ROOT = Path(__file__).resolve().parent.parent
MAX_ODD_SHARE = 0.01

ODD = (
    # A relative clause where the subject should be: "What somebody was taking who was killed."
    re.compile(r"^(What|Who|Whose|Of|So|Whom|Whatever|Whoever)\b(?!.*\?$)"),
    # People without a role: name the caller, the worker, the provider, the row.
    re.compile(r"\b(whoever|nobody|somebody|anybody|whose|whom)\b", re.IGNORECASE),
    # Words for which the industry has another one: request, response, report, continue, removed.
    re.compile(
        r"\b(wish|wishes|let in|asked|asks for|told|tells|goes on|come yet|gone|of its own|by itself)\b", re.IGNORECASE
    ),
)

# Statements of one kind per 1,000 lines of the package.
MAX_STATEMENTS = {"tuple assignments": 1.5, "lambdas": 2.0}

PLACES = {
    "package": ("gateway/*.py",),
    "tests": ("tests/*.py", "conftest.py"),
    "client": ("cli/*.py",),
    "documents": ("docs/*.md", "README.md", "CONTRIBUTING.md", "cli/README.md"),
}


@cache
def tracked_files(*patterns: str) -> tuple[Path, ...]:
    """Files that git tracks or would track, so that virtual environments and caches do not count."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return tuple(ROOT / name for name in listed if name and (ROOT / name).is_file())


def sentences_of_document(source: str) -> Iterator[tuple[int, str]]:
    """The line and text of each sentence of a Markdown document, without fenced code and with code spans blanked."""
    fenced = False
    paragraph: list[str] = []
    start = 1
    for number, line in enumerate([*source.splitlines(), ""], 1):
        is_fence = line.lstrip().startswith(("```", "~~~"))
        if is_fence:
            fenced = not fenced
        text = "" if fenced or is_fence else line.strip()
        if paragraph and (not text or re.match(r"[-*|#>]|\d+\.", text)):
            joined = re.sub(r"`[^`]*`", "x", " ".join(paragraph))
            for sentence in re.split(r"(?<=[.;:!?|])\s+", joined):
                if len(sentence) > MIN_SENTENCE_LENGTH:
                    yield start, sentence.strip(" |*->#")
            paragraph = []
        if text:
            if not paragraph:
                start = number
            paragraph.append(re.sub(r"^([-*>#]+|\d+\.)\s+", "", text))


def sentences_of(path: Path) -> Iterable[tuple[int, str]]:
    if path.suffix == ".py":
        return read_source(path).sentences
    return sentences_of_document(path.read_text())


def is_odd(sentence: str) -> bool:
    return any(pattern.search(sentence) for pattern in ODD)


@pytest.mark.parametrize("place", PLACES)
def test_sentences_are_plain_english(place: str) -> None:
    count = 0
    odd: list[str] = []
    for path in tracked_files(*PLACES[place]):
        for line, sentence in sentences_of(path):
            count += 1
            if is_odd(sentence):
                odd.append(f"{path.relative_to(ROOT)}:{line}: {sentence[:120]}")
    assert count > 0
    assert len(odd) <= count * MAX_ODD_SHARE, "\n".join(odd)


@pytest.mark.parametrize("pattern", ["gateway/*.py", "cli/llmgateway_cli/*.py"])
def test_the_packages_are_written_in_plain_statements(pattern: str) -> None:
    files = [read_source(path) for path in tracked_files(pattern)]
    lines = sum(file.lines for file in files)
    counts = sum((file.statements for file in files), Counter())
    shares = {kind: counts[kind] * 1000 / lines for kind in MAX_STATEMENTS}
    assert {kind: share for kind, share in shares.items() if share > MAX_STATEMENTS[kind]} == {}


def test_no_conditional_expression_contains_another() -> None:
    paths = tracked_files("gateway/*.py", "cli/llmgateway_cli/*.py")
    nested = [f"{path.relative_to(ROOT)}:{line}" for path in paths for line in read_source(path).nested]
    assert nested == []


@pytest.mark.parametrize(
    ("sentence", "odd"),
    [
        ("What somebody was taking who was killed.", True),
        ("Slots held by processes that no longer exist.", False),
        ("Who may connect?", False),
        ("Whoever holds the lease decides.", True),
        ("The provider told the usage.", True),
        ("Return the cached plan.", False),
    ],
)
def test_the_marks_find_odd_sentences(sentence: str, odd: bool) -> None:
    assert is_odd(sentence) is odd
