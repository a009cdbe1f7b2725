import pytest

from gateway.surfaces.console.shown_figures import (
    round_count,
    round_duration,
    show_cost,
    show_count,
    show_fine_cost,
    show_step,
)


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0"), (9_999, "9,999"), (12_345, "12.3K"), (1_234_567, "1.23M"), (25 * 10**9, "25B")]
)
def test_long_counts_get_a_unit(count: int, shown: str) -> None:
    assert round_count(count) == shown


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [(0, "0 ms"), (640, "640 ms"), (4_540, "4.54 s"), (9_000, "9.00 s"), (12_345, "12.3 s"), (125_400, "2 min 5 s")],
)
def test_long_durations_are_shown_in_seconds_and_minutes(milliseconds: int, shown: str) -> None:
    assert round_duration(milliseconds) == shown


def test_the_exact_value_is_in_the_title() -> None:
    assert show_cost("0.000123") == '<span title="$0.000123">$0.000123</span>'
    assert show_count(12_345) == '<span title="12,345">12.3K</span>'


def test_steps_of_a_plot_are_days_or_times() -> None:
    assert show_step("2026-11-23") == "23 Nov"
    assert (
        show_step("2026-11-23 14:05") == '<time datetime="2026-11-23T14:05:00Z" data-format="minute">14:05 UTC</time>'
    )


def test_parts_of_a_cost_have_four_decimals() -> None:
    assert show_fine_cost("0.1755") == '<span title="$0.1755">$0.1755</span>'
    assert show_fine_cost(1_234_560_000) == '<span title="$1.23456">$1.2346</span>'
    assert show_fine_cost(99_999) == '<span title="$0.000099999">$0.0001</span>'
    assert show_fine_cost(0) == '<span title="$0">$0</span>'
