import csv
import io

import pytest

from gateway.surfaces.visitors.tabular import CSV, JSON_LINES, write_cell, write_rows


@pytest.mark.parametrize("text", ["=1+1", "+1+1", "-1+2", "@SUM(1)", "\t=1", "\rx", "\n=1", "  =1", "＝1", "\0=1"])
def test_a_text_that_looks_like_a_formula_begins_with_an_apostrophe(text: str) -> None:
    assert write_cell(text) == "'" + text.replace("\0", "")


@pytest.mark.parametrize(
    "value, cell",
    [
        ("-12.5", "-12.5"),
        (-3, "-3"),
        (0.5, "0.5"),
        ("a=b", "a=b"),
        (None, ""),
        (True, "true"),
        ({"a": "=1"}, '{"a":"=1"}'),
    ],
)
def test_numbers_and_ordinary_texts_stay_as_they_are(value, cell: str) -> None:
    assert write_cell(value) == cell


def test_csv_reads_back_whatever_a_cell_holds() -> None:
    texts = ['a,b;"c"', "line\r\nbreak", "ünïcödé", ""]
    pages = [[{"name": text, "n": n} for n, text in enumerate(texts)], []]
    text = b"".join(write_rows(pages, ("name", "n"), CSV)).decode()
    assert [row["name"] for row in csv.DictReader(io.StringIO(text, newline=""))] == texts


def test_an_empty_export_has_its_header_in_csv_and_nothing_in_lines() -> None:
    assert b"".join(write_rows([[]], ("a", "b"), CSV)) == b'"a","b"\r\n'
    assert b"".join(write_rows([[]], ("a", "b"), JSON_LINES)) == b""
