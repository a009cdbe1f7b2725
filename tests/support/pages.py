"""Extracts fenced blocks and code spans from the documents."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CURRENT = [path for path in sorted((ROOT / "docs").rglob("*.md")) if path.parent.name != "changes"]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *CURRENT)
FENCE = re.compile(r"^( *)(```+|~~~+)([^\n]*)\n(.*?)^ *\2 *$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")


@dataclass(frozen=True)
class Block:
    """A fenced block: `kind` is the first word after the fence, `mark` the second."""

    page: str
    line: int
    kind: str
    mark: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks() -> Iterator[Block]:
    """Return every block of every page, in order."""
    for path in PAGES:
        page = path.read_text()
        for found in FENCE.finditer(page):
            indent, info = found[1], [*found[3].split(), "", ""]
            text = re.sub(f"^{indent}", "", found[4], flags=re.MULTILINE)
            yield Block(name_of(path), page.count("\n", 0, found.start()) + 1, info[0], info[1], text)


def spans(path: Path) -> list[str]:
    """Return the code spans outside of blocks."""
    return [" ".join(span.split()) for span in SPAN.findall(FENCE.sub("", path.read_text()))]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))
