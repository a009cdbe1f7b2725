"""The layout of tables: columns that fit the terminal, or one field in a line where they cannot."""

import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

INDENT = 2
GAP = 2
MIN_WIDTH = 8  # of a column that may be shortened
ELLIPSIS = "…"
UNLIMITED = 10_000  # columns of a pipe
CONTROLS = ("Cc", "Cf")  # Unicode categories


class Column(NamedTuple):
    """A column: its title, whether it holds numbers, and whether its texts may be shortened to fit."""

    title: str
    number: bool = False
    shorten: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns and cleaned rows; `widths` is empty where the table does not fit and becomes one field in a line."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    widths: Sequence[int]


def clean(text: str, keep: str = "") -> str:
    """Return text without control characters, which could change the terminal, but with those in `keep`."""
    removed: dict[str, str | int | None] = {
        letter: " " for letter in text if unicodedata.category(letter) in CONTROLS and letter not in keep
    }
    return text.translate(str.maketrans(removed))


def display_width(text: str) -> int:
    """Return the number of terminal columns that a text takes."""
    return sum(_letter_width(letter) for letter in text)


def _letter_width(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 1 + (unicodedata.east_asian_width(letter) in "WF")


def shortened(text: str, width: int) -> str:
    """Return a text of at most `width` columns, with an ellipsis if something is missing."""
    if display_width(text) <= width:
        return text
    result = ""
    used = 1
    for letter in text:
        used += _letter_width(letter)
        if used > width:
            break
        result += letter
    return result + ELLIPSIS


def layout(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> Layout:
    """Return the layout of a table on a terminal of `width` columns (None: no limit)."""
    cleaned = [[clean(cell) for cell in row] for row in rows]
    texts = [[column.title, *(row[number] for row in cleaned)] for number, column in enumerate(columns)]
    widths = [max(display_width(text) for text in column) for column in texts]
    if width is not None:
        widths = _fitted(columns, widths, width)
    if not widths:
        return Layout(columns, cleaned, ())
    short = [[shortened(cell, size) for cell, size in zip(row, widths, strict=True)] for row in cleaned]
    return Layout(columns, short, widths)


def _fitted(columns: Sequence[Column], widths: list[int], width: int) -> list[int]:
    """Return the widths after shortening the widest flexible columns; [] if they still do not fit."""
    excess = INDENT + sum(widths) + GAP * (len(widths) - 1) - width
    fitted = list(widths)
    flexible = [number for number, column in enumerate(columns) if column.shorten]
    while excess > 0 and flexible:
        widest = max(flexible, key=fitted.__getitem__)
        if fitted[widest] <= max(MIN_WIDTH, display_width(columns[widest].title)):
            break
        fitted[widest] -= 1
        excess -= 1
    if excess > 0:
        return []
    return fitted


def padded(text: str, width: int, number: bool) -> str:
    """Return a cell with spaces: before numbers, after texts."""
    space = " " * (width - display_width(text))
    if number:
        return space + text
    return text + space


def plain_lines(arranged: Layout) -> Iterator[str]:
    """Yield a table as text: a header, a dashed rule and the rows, indented by two spaces."""
    header = [column.title for column in arranged.columns]
    rule = ["-" * size for size in arranged.widths]
    for row in (header, rule, *arranged.rows):
        cells = [
            padded(cell, size, column.number)
            for cell, size, column in zip(row, arranged.widths, arranged.columns, strict=True)
        ]
        yield (" " * INDENT + (" " * GAP).join(cells)).rstrip()


def records(arranged: Layout) -> Iterator[Sequence[tuple[str, str]]]:
    """Yield the names and values of each row of a table that does not fit."""
    titles = [column.title for column in arranged.columns]
    for row in arranged.rows:
        yield list(zip(titles, row, strict=True))


def field_lines(pairs: Sequence[tuple[str, str]], width: int | None) -> Iterator[tuple[str, str]]:
    """Yield names and values as lines of at most `width` columns, each as its label and its text.

    A word stays whole if it fits a line, so that an id can be copied.
    """
    longest = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        label = f"{' ' * INDENT}{name + ':':{longest + 1}} "
        text = clean(value)
        room = (width or UNLIMITED) - len(label)
        words = max((display_width(word) for word in text.split()), default=0)
        if words > room:
            yield label.rstrip(), ""
            label = " " * INDENT
            room = (width or UNLIMITED) - INDENT
        for number, part in enumerate(textwrap.wrap(text, max(room, 1)) or [""]):
            if number:
                label = " " * len(label)
            yield label, part
