"""Rows as CSV or JSON lines: written page by page, and safe to open in a spreadsheet."""

import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

CSV = "csv"
JSON_LINES = "jsonl"
FORMATS = (CSV, JSON_LINES)
MEDIA = {CSV: "text/csv; charset=utf-8", JSON_LINES: "application/x-ndjson"}
# First characters of texts that spreadsheets read as formulas, in ASCII and in full-width forms.
FORMULA = re.compile(r"[\s\0]*[=+\-@＝＋－＠]|[\t\r\n]")
# First characters with which no formula begins: nearly all texts begin with one of them.
PLAIN_START = frozenset(string.ascii_letters + string.digits)
NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)

Row = Mapping[str, Any]


def write_rows(pages: Iterable[Sequence[Row]], columns: Sequence[str], form: str) -> Iterator[bytes]:
    """Return the pages as text, one piece for each; CSV (RFC 4180) begins with the names of its `columns`."""
    if form == CSV:
        yield _write_lines([columns])
    for page in pages:
        if not page:
            continue
        if form == CSV:
            yield _write_lines([[write_cell(row.get(name)) for name in columns] for row in page])
        else:
            yield b"".join(orjson.dumps(row) + b"\n" for row in page)


def write_cell(value: Any) -> str:
    """Return a value as a cell. An apostrophe is put before a text that a spreadsheet would read as a formula;
    spreadsheets show the rest as text. Numbers are unchanged."""
    if type(value) is str:
        text = value
    elif value is None:
        return ""
    elif type(value) is int:
        return str(value)
    elif isinstance(value, str):
        text = str(value)
    else:
        text = orjson.dumps(value).decode()
    if "\0" in text:
        text = text.replace("\0", "")
    if text[:1] in PLAIN_START:
        return text
    if FORMULA.match(text) and not NUMBER.fullmatch(text):
        return f"'{text}"
    return text


def _write_lines(lines: Iterable[Sequence[str]]) -> bytes:
    """All fields are quoted: where a semicolon separates cells, an unquoted text could begin another cell. Joined here,
    because `csv.writer` looks at each character: it took three times as long."""
    return "".join([_write_line(cells) for cells in lines]).encode("utf-8", "replace")


def _write_line(cells: Iterable[str]) -> str:
    quoted = '","'.join([cell.replace('"', '""') if '"' in cell else cell for cell in cells])
    return f'"{quoted}"\r\n'
