"""Limits on style: sentences that a stranger can read, and plain statements.

The limits are those of well-known Python projects (Flask, Werkzeug, HTTPX, Starlette, Authlib), with some room. A
finding names its file and line; rewrite the sentence or the statement.
"""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAX_ODD_SHARE = 0.01
SHORTEST_SENTENCE = 12  # characters

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
MAX_STATEMENTS = {"tuple assignments": 1.5, "conditional expressions": 10.0, "lambdas": 2.0}

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


def docstrings_and_comments(source: str) -> Iterator[tuple[int, str]]:
    """The line and text of the first paragraph of each docstring, and of each comment."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield getattr(node, "lineno", 1), " ".join(docstring.split("\n\n")[0].split())
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and len(token.string) > SHORTEST_SENTENCE:
            yield token.start[0], token.string.lstrip("# ")


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
                if len(sentence) > SHORTEST_SENTENCE:
                    yield start, sentence.strip(" |*->#")
            paragraph = []
        if text:
            if not paragraph:
                start = number
            paragraph.append(re.sub(r"^([-*>#]+|\d+\.)\s+", "", text))


def sentences_of(path: Path) -> Iterator[tuple[int, str]]:
    source = path.read_text()
    if path.suffix == ".py":
        return docstrings_and_comments(source)
    return sentences_of_document(source)


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


def statements_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            if any(isinstance(target, ast.Tuple) for target in node.targets):
                yield "tuple assignments"
        elif isinstance(node, ast.IfExp):
            yield "conditional expressions"
        elif isinstance(node, ast.Lambda):
            yield "lambdas"


@pytest.mark.parametrize("pattern", ["gateway/*.py", "cli/llmgateway_cli/*.py"])
def test_the_packages_are_written_in_plain_statements(pattern: str) -> None:
    counts = dict.fromkeys(MAX_STATEMENTS, 0)
    lines = 0
    for path in tracked_files(pattern):
        source = path.read_text()
        lines += len(source.splitlines())
        for kind in statements_of(ast.parse(source)):
            counts[kind] += 1
    shares = {kind: count * 1000 / lines for kind, count in counts.items()}
    assert {kind: share for kind, share in shares.items() if share > MAX_STATEMENTS[kind]} == {}


def test_no_conditional_expression_contains_another() -> None:
    nested = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in tracked_files("gateway/*.py", "cli/llmgateway_cli/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.IfExp)
        if any(isinstance(part, ast.IfExp) for part in (node.test, node.body, node.orelse))
    ]
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
