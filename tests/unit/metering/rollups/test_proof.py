"""The check of the rollups detects every sum that is wrong by one."""

import random
from functools import partial

import pytest
from support.usage import insert_rows, usage_row

from gateway.clock import DAY_US, HOUR_US
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.proof import compare_rollups
from gateway.metering.rollups.purge import UsagePurge
from gateway.metering.rollups.rollup_table import BLOCK_DAYS, BLOCK_HOURS, BLOCKS, DAILY, HOURS, Series
from gateway.store.database import Database


def is_unlike(database: Database) -> bool:
    compared = database.read(lambda: list(compare_rollups(database, 0)))
    return any(database.report(lambda: [database.fetch(sql, params) for sql, params, _ in compared]))


@pytest.fixture
def summed(database, clock, monkeypatch) -> Database:
    """A store with rows that lie in it and rows that were removed, all summed up, with some days and blocks."""
    for name in ("job", "days", "purge"):
        monkeypatch.setattr(f"gateway.metering.rollups.{name}.pause", lambda s: None)
    now_us, dice = database.now_us(), random.Random(6)
    days = (0, 1, 9, 2 * BLOCK_DAYS)
    given = {"cost_nusd": 50, "source": "app", "session": "s", "tags": '{"team":"search"}'}
    insert_rows(database, *(
        usage_row(now_us - day * DAY_US - dice.randrange(HOUR_US), posted_at=now_us - 1, **given)
        for day in days
        for _ in range(6)
    ))  # fmt: skip
    Rollups(database).catch_up()
    assert UsagePurge(database, clock, 3, "%never%", lambda: database.now_us()).run() == 12
    assert not is_unlike(database)
    return database


def test_every_sum_that_is_wrong_by_one_is_noticed(summed) -> None:
    # The oldest were of rows that are removed, the newest are of rows that lie in the table.
    both = "SELECT series, owner, MIN(hour) FROM rollup GROUP BY 1, 2 UNION SELECT series, owner, MAX(hour)"
    places = summed.read(lambda: summed.fetch(f"{both} FROM rollup GROUP BY 1, 2"))
    assert {int(place[0]) for place in places} == {one + level for one in Series for level in (0, DAILY, BLOCKS)}
    assert len(places) >= 5 * len(Series)
    unnoticed = []
    for place in places:
        for figure in ("rows", "cost_nusd"):
            sql = f"UPDATE rollup SET {figure} = {figure} + ? WHERE series = ? AND owner = ? AND hour = ?"
            summed.write(lambda asked=sql, place=place: summed.execute(asked, (1, *place)))
            if not is_unlike(summed):
                unnoticed.append((figure, *place))
            summed.write(lambda asked=sql, place=place: summed.execute(asked, (-1, *place)))
    assert unnoticed == [] and not is_unlike(summed)


LEVELS = ((0, 1), (DAILY, HOURS), (BLOCKS, BLOCK_HOURS))


@pytest.mark.parametrize(
    "series",
    [(2, 5), (3, 4), (0, 1), (1, 4), (6, 7), tuple(Series)],
    ids=["sources", "keys", "projects", "models", "tags", "all"],
)
@pytest.mark.parametrize("which", ["MIN", "MAX"], ids=["removed", "held"])
def test_sums_that_are_wrong_by_one_alike_on_all_levels_are_noticed(summed, series, which) -> None:
    oldest = f"SELECT {which}(hour) FROM rollup WHERE series = 0"
    hour = int(summed.read(lambda: summed.fetch(oldest))[0][0])
    for one in series:
        for level, hours in LEVELS:
            sql = "UPDATE rollup SET cost_nusd = cost_nusd + 1, rows = rows + 1 WHERE series = ? AND hour = ?"
            params = (one + level, hour // hours * hours)
            summed.write(lambda asked=(sql, params): summed.execute(*asked))
    assert is_unlike(summed)


@pytest.mark.parametrize("column", ["name", "provider"])
def test_sums_under_another_model_or_provider_are_noticed(summed, column: str) -> None:
    series = [str(one + level) for one in (Series.PROJECT_MODEL, Series.KEY_MODEL) for level, _ in LEVELS]
    sql = f"UPDATE rollup SET {column} = 'another ' || {column} WHERE series IN ({', '.join(series)})"
    summed.write(partial(summed.execute, sql))
    assert is_unlike(summed)
