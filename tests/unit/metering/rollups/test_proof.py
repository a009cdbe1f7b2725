"""Of all that the rollups say, nothing can be wrong by one and go unnoticed."""

import random

from support.usage import insert_rows, usage_row

from gateway.clock import DAY_US, HOUR_US
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.proof import compare_rollups
from gateway.metering.rollups.purge import UsagePurge
from gateway.metering.rollups.table import BLOCK_DAYS, BLOCKS, DAILY, Series
from gateway.store.database import Database


def is_unlike(database: Database) -> bool:
    compared = database.read(lambda: list(compare_rollups(database, 0)))
    return any(database.report(lambda: [database.fetch(sql, params) for sql, params, _ in compared]))


def test_every_sum_that_is_wrong_by_one_is_noticed(database, clock, monkeypatch) -> None:
    for name in ("job", "days", "purge"):
        monkeypatch.setattr(f"gateway.metering.rollups.{name}.pause", lambda s: None)
    now_us, dice = database.now_us(), random.Random(6)
    days = (1, 2, 9, 2 * BLOCK_DAYS)
    insert_rows(database, *(
        usage_row(now_us - day * DAY_US - dice.randrange(HOUR_US), posted_at=now_us - 1, cost_nusd=50, source="app")
        for day in days
        for _ in range(6)
    ))  # fmt: skip
    Rollups(database).catch_up()
    assert UsagePurge(database, clock, 3, "%never%").run() == 12
    assert not is_unlike(database)
    # The oldest were of rows that are removed, the newest are of rows that lie in the table.
    both = "SELECT series, owner, MIN(hour) FROM rollup GROUP BY 1, 2 UNION SELECT series, owner, MAX(hour)"
    places = database.read(lambda: database.fetch(f"{both} FROM rollup GROUP BY 1, 2"))
    assert {int(place[0]) for place in places} == {one + level for one in Series for level in (0, DAILY, BLOCKS)}
    assert len(places) >= 5 * len(Series)
    unnoticed = []
    for place in places:
        for figure in ("rows", "cost_nusd"):
            sql = f"UPDATE rollup SET {figure} = {figure} + ? WHERE series = ? AND owner = ? AND hour = ?"
            database.write(lambda asked=sql, place=place: database.execute(asked, (1, *place)))
            if not is_unlike(database):
                unnoticed.append((figure, *place))
            database.write(lambda asked=sql, place=place: database.execute(asked, (-1, *place)))
    assert unnoticed == [] and not is_unlike(database)
