"""Every charge and every count has its figure in the statistics."""

import json
from operator import attrgetter

import pytest
from support.usage import insert_rows, usage_row

from gateway.catalogue.prices import COMPONENTS
from gateway.clock import HOUR_US
from gateway.errors import Cancelled, ContentRefused, Interrupted, UpstreamTimeout
from gateway.metering.activity import Owners, Span, measure
from gateway.metering.figures import EXTRA_COSTS, EXTRA_COUNTS, FIGURES
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.queries import at_once
from gateway.metering.usage_table import UsageRecord
from gateway.neutral.units import UNITS
from gateway.neutral.usage import COUNTS
from gateway.surfaces.visitors.usage_report import write_figures

# Components and counts that usage rows have a column for.
COLUMNS = {
    *("input", "output", "reasoning", "cached_input", "cache_write", "cache_write_1h"),
    *("cache_read", "cache_write", "cache_write_1h"),
}
# Counts without a figure of their own: their cost is in that of pages and of images.
WITHOUT_FIGURE = {"annotated_pages", "images_read"}
TOKENS = ("input", "output", "reasoning", "cache_read", "cache_write")
COSTS = (
    *("inputCost", "outputCost", "cachedInputCost", "cacheWriteInputCost", "requestCost", "imageInputCost"),
    *("imageOutputCost", "audioInputCost", "audioOutputCost", "videoOutputCost", "searchCost", "pageCost"),
    *("characterCost", "codeCost"),
)


def told(database, row) -> dict:
    insert_rows(database, row)
    Rollups(database).catch_up()
    hour, project = row.at // HOUR_US, f"proj_{row.project.hex()}"
    [found] = at_once(
        database, lambda: measure(database, Owners((project,)), Span(hour, hour + 1, "all"), "total", FIGURES)
    )
    return write_figures(found.figures)


def test_every_component_of_a_charge_and_every_count_has_its_figure() -> None:
    parts = [name for names in EXTRA_COSTS.values() for name in names]
    assert set(parts) | COLUMNS >= set(COMPONENTS) and len(parts) == len(set(parts))
    units = {name for names in EXTRA_COUNTS.values() for name in names}
    assert units | COLUMNS | WITHOUT_FIGURE == set(COUNTS) | COLUMNS


@pytest.mark.parametrize("part", [name for names in EXTRA_COSTS.values() for name in names])
def test_the_costs_that_activity_shows_add_up_to_the_cost(database, part) -> None:
    extra = json.dumps({"nusd": {part: 5_000}})
    row = usage_row(database.now_us() - HOUR_US, cost_nusd=5_018, input_nusd=7, output_nusd=11, extra=extra)
    shown = told(database, row)
    assert round(sum(shown[name] for name in COSTS) * 10**9) == round(shown["cost"] * 10**9) == 5_018


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit.count in UsageRecord._fields], ids=attrgetter("count"))
def test_a_count_with_a_column_is_added_to_the_figures_of_its_unit(database, unit) -> None:
    shown = told(database, usage_row(database.now_us() - HOUR_US, **(dict.fromkeys(TOKENS, 0) | {unit.count: 5})))
    added = {name for name, value in shown.items() if name.endswith("Tokens") and value}
    assert added - {"totalTokens"} == {figure.member for figure in unit.figures} != set()


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("client_error", 1),
        (ContentRefused.code, 1),
        (Cancelled.code, 1),
        (UpstreamTimeout.code, 0),
        (Interrupted.code, 0),
    ],
)
def test_errors_that_the_caller_caused_are_counted_apart(database, code: str, count: int) -> None:
    shown = told(database, usage_row(database.now_us() - HOUR_US, error=code))
    assert (shown["errorCount"], shown["clientErrorCount"]) == (1, count)


def test_units_other_than_tokens_are_reported(database) -> None:
    units = {
        "searches": 2, "file_searches": 3, "pages": 4, "images": 5, "characters": 6, "audio_ms": 1500, "video_ms": 2500,
        "code_sessions": 7,
    }  # fmt: skip
    shown = told(database, usage_row(database.now_us() - HOUR_US, extra=json.dumps({"units": units})))
    assert {name: shown[name] for name in shown if name.endswith(("Count", "Seconds")) and shown[name]} == {
        "requestCount": 1, "creditsRequestCount": 1, "searchCount": 5, "pageCount": 4, "imageCount": 5,
        "characterCount": 6, "audioSeconds": 1.5, "videoSeconds": 2.5, "codeSessionCount": 7,
    }  # fmt: skip
