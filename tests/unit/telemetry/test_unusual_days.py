"""A day is compared with the past of its weekday, or with all past days."""

from gateway import ids
from gateway.clock import DAY_US, Clock
from gateway.control.version import Control
from gateway.metering.rollups.rollup_table import DAILY, Series
from gateway.metering.usage_table import raw_id
from gateway.money import NANO
from gateway.runtime.state_changes import StateLog
from gateway.store.database import Database
from gateway.store.documents import Documents
from gateway.telemetry.unusual_days import UnusualWatch, judge

MINIMUM = 10 * NANO
TODAY = 20_000  # a day since the epoch


def past(*amounts: int, every: int = 1) -> list[tuple[int, int]]:
    return [(TODAY - every * (number + 1), amount) for number, amount in enumerate(amounts)]


def test_the_first_days_cannot_be_unusual() -> None:
    assert judge(past(*[5] * 6), TODAY, 1) is None
    assert judge(past(*[5] * 7), TODAY, 1) is not None


def test_a_weekday_is_compared_with_the_same_weekdays_where_there_are_enough() -> None:
    amounts = [(TODAY - day, 100 if day % 7 == 0 else 1) for day in range(1, 29)]
    day = judge(amounts, TODAY, 1)
    assert day is not None and (day.usual_nusd, day.threshold_nusd) == (100, 300)
    few = judge([one for one in amounts if one[0] > TODAY - 20], TODAY, 1)
    assert few is not None and few.usual_nusd == 1


def test_one_outlier_of_the_past_changes_little_and_spread_widens_the_bound() -> None:
    steady = judge(past(10, 10, 10, 10, 10, 10, 10, 5_000), TODAY, 1)
    assert steady is not None and steady.threshold_nusd == 30
    spread = judge(past(10, 20, 30, 40, 50, 60, 70, 80), TODAY, 1)
    assert spread is not None and spread.threshold_nusd == round(45 + 6 * 1.4826 * 20)


def test_small_amounts_are_never_unusual() -> None:
    day = judge(past(*[1] * 10), TODAY, MINIMUM)
    assert day is not None and day.threshold_nusd == MINIMUM


def test_days_are_read_from_both_stores(database: Database, clock: Clock) -> None:
    """A key, a session and a person of no organization that exists are only left out."""
    control, published, states = Control.observer(database, clock), [], StateLog()
    states.subscribe(published.append)
    hour = database.now_us() // DAY_US * 24
    sql = "INSERT INTO rollup (series, owner, hour, part, name, provider, updated_at, rows, cost_nusd) VALUES ({})"
    owner = raw_id(ids.new("key"))
    for series, name, hours in ((Series.KEY, "", 0), (Series.PROJECT_TAG, "s", 0), (Series.KEY + DAILY, "", 24)):
        row = (series, owner, hour - hours, 0, name, "", 1, 1, 50 * NANO)
        database.change_rows(sql.format(", ".join("?" * len(row))), row)
    UnusualWatch(database, control, Documents(database), states, MINIMUM).scan()
    assert published == []
