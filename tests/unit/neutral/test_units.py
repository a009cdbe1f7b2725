"""The table of units agrees with the classes that declare some of its names, and with the database."""

import pytest
from msgspec import Struct

from gateway.catalogue.entries import RATE_NAMES, TokenRates
from gateway.catalogue.prices import ROUNDING_ROOM, Charge
from gateway.metering.figures import FIGURES
from gateway.neutral.units import COMPONENTS, COUNTS, UNITS, Unit, with_counters
from gateway.neutral.usage import Usage

NOT_UNITS = {
    Usage: {"basis", "price_key", "calls"},
    Charge: {"total", "discount_ppm", "saved", "plain"},
    TokenRates: set(),
}


def columns_of(unit: Unit) -> set[str]:
    return {figure.column for figure in unit.figures}


@pytest.mark.parametrize(("kind", "names"), [(Usage, COUNTS), (Charge, COMPONENTS), (TokenRates, RATE_NAMES)])
def test_a_class_has_the_fields_of_the_units_and_no_other(kind: type, names: tuple[str, ...]) -> None:
    fields = getattr(kind, "__struct_fields__", None) or kind.__dataclass_fields__
    assert set(fields) - NOT_UNITS[kind] == set(names)


def test_no_price_or_count_has_two_rows() -> None:
    assert len(set(RATE_NAMES)) == len(RATE_NAMES) and len(set(COUNTS)) == len(COUNTS)


def test_every_figure_of_a_unit_is_a_column_of_the_rollups(sqlite_database) -> None:
    sql = "PRAGMA table_info(rollup)"
    columns = {row[1] for row in sqlite_database.read(lambda: sqlite_database.execute(sql).fetchall())}
    named = {figure.column for unit in UNITS for figure in (*unit.figures, unit.cost) if figure}
    assert named <= columns and named <= set(FIGURES)


def test_a_figure_has_one_name_in_answers() -> None:
    figures = {figure for unit in UNITS for figure in (*unit.figures, unit.cost) if figure}
    assert len({figure.column for figure in figures}) == len({figure.member for figure in figures}) == len(figures)


@pytest.mark.parametrize(
    ("figure", "price"),
    [("cached_tokens", "cache_read"), ("cache_write_tokens", "cache_write")],
)
def test_tokens_of_a_cache_have_its_figure(figure: str, price: str) -> None:
    assert {unit.price for unit in UNITS if figure in columns_of(unit)} == {
        unit.price for unit in UNITS if price in unit.price
    }


def test_tokens_that_are_billed_are_counted_on_their_side() -> None:
    for unit in UNITS:
        if unit.billed in ("input", "output") and unit.count and not unit.included_in:
            assert f"{unit.billed}_tokens" in columns_of(unit), unit.price


def test_the_bound_has_room_to_round_every_component() -> None:
    assert len(COMPONENTS) <= 2 * ROUNDING_ROOM


def test_a_unit_that_replaces_a_missing_price_exists() -> None:
    assert {unit.absent for unit in UNITS} - {""} <= set(RATE_NAMES)


def test_a_struct_keeps_its_fields_and_gets_those_that_it_lacks() -> None:
    @with_counters(("a", "b"))
    class Counted(Struct, frozen=True):
        """Two counts."""

        a: int = 1
        name: str = ""

    assert Counted.__struct_fields__ == ("a", "name", "b") and Counted.__doc__ == "Two counts."
    assert (Counted().a, getattr(Counted(b=3), "b")) == (1, 3)  # noqa: B009
    with pytest.raises(AttributeError):
        Counted().a = 2
