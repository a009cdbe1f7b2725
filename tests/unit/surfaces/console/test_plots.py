from gateway.money import round_usd
from gateway.surfaces.console.plots import (
    COLOURS,
    HEIGHT,
    OTHER_SERIES,
    build_lines,
    build_plot,
    choose_colours,
    round_up,
)

DAYS = ("2026-11-21", "2026-11-22", "2026-11-23")


def test_bars_are_stacked_to_their_totals() -> None:
    plot = build_plot(DAYS, {"small": (1, 0, 2), "large": (3, 0, 8)}, str)
    assert [name for _, name in plot.legend] == ["large", "small"] and plot.scale == ("10", "5", "0")
    heights = [sum(part.height for part in bar.segments) for bar in plot.bars]
    assert heights == [0.4 * HEIGHT, 0, HEIGHT]
    assert plot.bars[2].title == "2026-11-23: 10\nlarge: 8\nsmall: 2" and plot.bars[1].segments == ()
    assert min(part.y for part in plot.bars[2].segments) == 0


def test_series_of_equal_sums_are_in_the_order_of_their_names() -> None:
    plot = build_plot(DAYS, {"b": (1, 0, 1), "c": (0, 2, 0), "a": (0, 1, 1)}, str)
    assert [name for _, name in plot.legend] == ["a", "b", "c"]


def test_small_series_are_summed_up() -> None:
    series = {f"model {number}": (number, 0, 0) for number in range(1, 10)}
    plot = build_plot(DAYS, series, str)
    assert [name for _, name in plot.legend][-1] == OTHER_SERIES and len(plot.legend) == 7
    assert plot.bars[0].title.endswith("Other: 6")


def test_an_axis_ends_at_a_round_number_and_names_the_first_and_last_step() -> None:
    assert [round_up(value) for value in (0, 7, 11, 21, 999, 10**9)] == [1, 8, 15, 30, 1000, 10**9]
    assert [round_up(value) for value in (2, 4, 5, 6)] == [2, 4, 5, 6]
    assert build_plot(DAYS, {}, str).ticks == DAYS
    assert build_plot((), {}, str).bars == ()


def test_the_middle_of_a_short_axis_has_no_label() -> None:
    assert build_plot(DAYS, {"small": (1, 0, 0)}, str).scale == ("1", "", "0")
    assert build_plot(DAYS, {"small": (400, 0, 0)}, round_usd).scale == ("$0.0000004", "$0.0000002", "$0.00")


def test_bars_of_hours_have_a_time_that_a_browser_shows_in_the_zone_of_its_reader() -> None:
    assert build_plot(DAYS, {}, str).bars[0].at == ""
    plot = build_plot(("2026-11-23T14:00:00",), {"small": (1,)}, str)
    assert plot.ticks == ("2026-11-23T14:00:00",)
    assert [(bar.title, bar.at) for bar in plot.bars] == [("2026-11-23 14:00 UTC: 1", "2026-11-23T14:00:00Z")]


def test_a_name_has_its_colour_whatever_else_is_shown() -> None:
    names = [f"model {number}" for number in range(COLOURS)]
    alone = {name: choose_colours([name])[name] for name in names}
    for first in names:
        for second in names:
            pair = choose_colours([second, first, OTHER_SERIES])
            assert OTHER_SERIES not in pair
            if alone[first] != alone[second]:
                assert pair == {name: alone[name] for name in (first, second)}
    assert len(set(choose_colours(names).values())) == COLOURS
    assert choose_colours(names) == choose_colours(reversed(names))
    assert len(choose_colours([*names, "one more", "and more"])) == COLOURS + 2


def test_lines_have_gaps_and_single_points() -> None:
    plot = build_lines(DAYS, {"a": (5, None, 10), "b": (None, 10, 5)}, str, {"a": "c3"}, before=(None, 20, None))
    assert [(line.css_class, line.path) for line in plot.lines] == [
        ("c3", "M166.7 180h0M833.3 120h0"),
        ("s1", "M500 120h0L833.3 180"),
    ]
    assert plot.before == "M500 0h0" and plot.scale == ("20", "10", "0")
    assert [bar.title for bar in plot.bars] == [
        "2026-11-21\na: 5",
        "2026-11-22\nb: 10\nBefore: 20",
        "2026-11-23\na: 10\nb: 5",
    ]


def test_the_values_of_another_period_are_a_line_below_the_end_of_the_axis() -> None:
    plot = build_plot(DAYS, {"a": (1, 2, 3)}, str, before=(10, 0))
    assert plot.top == 10 and plot.before == "M166.7 0h0L500 240"
    assert plot.bars[0].title.endswith("\nBefore: 10") and "Before" not in plot.bars[2].title
