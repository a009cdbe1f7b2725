"""The layout of tables, fields and charts."""

import pytest

from llmgateway_cli.plots import plot_lines
from llmgateway_cli.tables import Column, clean, display_width, field_lines, layout, plain_lines, records, shortened

COLUMNS = (Column("NAME", shorten=True), Column("ID"), Column("COST", number=True))
ROWS = [("A name that is long", "key_1", "$1.00"), ("B", "key_22", "$10.00")]


def lines(width: int | None) -> list[str]:
    return list(plain_lines(layout(COLUMNS, ROWS, width)))


def test_a_table_has_a_header_a_rule_and_numbers_at_the_right() -> None:
    assert lines(None) == [
        "  NAME                 ID        COST",
        "  -------------------  ------  ------",
        "  A name that is long  key_1    $1.00",
        "  B                    key_22  $10.00",
    ]


def test_only_texts_that_may_be_shortened_are() -> None:
    assert lines(30)[2:] == ["  A name that…  key_1    $1.00", "  B             key_22  $10.00"]


def test_a_table_that_cannot_fit_becomes_fields() -> None:
    arranged = layout(COLUMNS, ROWS, 20)
    assert arranged.widths == ()
    assert next(iter(records(arranged))) == [("NAME", "A name that is long"), ("ID", "key_1"), ("COST", "$1.00")]


def test_an_id_is_not_broken_where_a_line_can_hold_it() -> None:
    pairs = [("Project", "proj_" + "0" * 32), ("Text", "several words of a text")]
    shown = ["".join(parts) for parts in field_lines(pairs, 40)]
    assert shown[:2] == ["  Project:", "  proj_" + "0" * 32]
    assert shown[2:] == ["  Text:    several words of a text"]
    assert ["".join(parts) for parts in field_lines([("Text", "")], 40)] == ["  Text: "]
    narrow = ["".join(parts) for parts in field_lines(pairs, 20)]
    assert max(len(line) for line in narrow) <= 20


@pytest.mark.parametrize(("text", "cleaned"), [("a\x1b[31mb\r\n", "a [31mb  "), ("a\u202eb", "a b"), ("é—日", "é—日")])
def test_control_characters_do_not_reach_the_terminal(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


def test_wide_characters_count_twice() -> None:
    assert [display_width(text) for text in ("abc", "日本", "e\u0301")] == [3, 4, 1]
    assert shortened("日本語", 5) == "日本…"


@pytest.mark.parametrize("width", [40, 80, 200, None])
@pytest.mark.parametrize("count", [1, 24, 30, 365, 8760])
def test_a_chart_fits_and_its_highest_bar_is_full(count: int, width: int | None) -> None:
    points = [(f"2026-01-{number % 28 + 1:02}", float(number)) for number in range(count)]
    drawn = list(plot_lines(points, width))
    assert len(drawn) == 9 and max(len(line) for line in drawn) <= (width or 80)
    if count > 1:
        assert "█" in drawn[0] and drawn[7].count("█") > drawn[0].count("█")


def test_a_chart_names_its_highest_amount_and_its_dates() -> None:
    *bars, dates = plot_lines([("2026-01-01", 1.0), ("2026-01-02", 4.0)], 80)
    assert [line.partition("|")[0].strip() for line in bars] == ["$4.00", *[""] * 6, "$0.00"]
    assert dates.split() == ["2026-01-01", "2026-01-02"]


def test_a_chart_of_nothing_is_flat() -> None:
    assert list(plot_lines([], 80)) == []
    assert not any("█" in line for line in plot_lines([("2026-01-01", 0.0), ("2026-01-02", 0.0)], 80))
