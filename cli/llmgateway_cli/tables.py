"""The layout of tables: columns that fit the terminal, or one field in a line where they cannot."""

import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llmgateway_cli.values import NO_VALUE

INDENT = 2
GAP = 2
MIN_WIDTH = 8  # of a column that may be shortened
EASY_WIDTH = 16  # columns are left out before others become narrower than this
ELLIPSIS = "…"
EMPTY = frozenset(("", NO_VALUE))
UNLIMITED = 10_000  # columns of a pipe
CONTROLS = ("Cc", "Cf")  # Unicode categories


class Column(NamedTuple):
    """A column: its title, whether it holds numbers, and whether its texts may be shortened to fit. Numbers never are.
    Columns with a `rank` are left out of a table that does not fit, those of the highest rank first."""

    title: str
    number: bool = False
    shorten: bool = False
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns and cleaned rows; `widths` is empty where the table does not fit and becomes one field in a line.
    `left_out` are the titles of columns that have no room."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    widths: Sequence[int]
    left_out: Sequence[str] = ()


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
    shown = list(range(len(columns)))
    empty = [EMPTY.issuperset(texts[number][1:]) for number in shown]
    if width is not None:
        # A column without a value is the first that has to go.
        ranks = [each.rank + UNLIMITED * (gone and each.rank > 0) for each, gone in zip(columns, empty, strict=True)]
        ranked = [each._replace(rank=rank) for each, rank in zip(columns, ranks, strict=True)]
        shown, widths = choose_columns(ranked, widths, width)
    if not widths:
        return Layout(columns, cleaned, ())
    chosen = [columns[number] for number in shown]
    short = [[shortened(row[number], size) for number, size in zip(shown, widths, strict=True)] for row in cleaned]
    left_out = [column.title for number, column in enumerate(columns) if number not in shown and not empty[number]]
    return Layout(chosen, short, widths, left_out)


def choose_columns(columns: Sequence[Column], widths: Sequence[int], width: int) -> tuple[list[int], list[int]]:
    """Return the numbers of the columns that fit a line and their widths; both empty if the line is too short.

    Texts are shortened first, then columns with a rank are left out, and then texts are shortened further."""
    shown = list(range(len(columns)))
    while True:
        left = [columns[number] for number in shown]
        natural = [widths[number] for number in shown]
        fitted = _fitted(left, natural, width, EASY_WIDTH)
        lowest = max(shown, key=lambda number: (columns[number].rank, number))
        if fitted or not columns[lowest].rank:
            break
        shown.remove(lowest)
    fitted = fitted or _fitted(left, natural, width, MIN_WIDTH)
    return (shown, fitted) if fitted else ([], [])


def _fitted(columns: Sequence[Column], widths: Sequence[int], width: int, least: int) -> list[int]:
    """Return the widths after shortening the widest flexible columns, to `least` columns or their title; [] if they
    still do not fit."""
    excess = INDENT + sum(widths) + GAP * (len(widths) - 1) - width
    fitted = list(widths)
    flexible = [number for number, column in enumerate(columns) if column.shorten]
    while excess > 0 and flexible:
        widest = max(flexible, key=fitted.__getitem__)
        if fitted[widest] <= max(least, display_width(columns[widest].title)):
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
