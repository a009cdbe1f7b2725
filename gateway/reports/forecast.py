"""The forecast of a month's cost: what was spent, and the average of the last days for the days that are left."""

from typing import NamedTuple

from gateway.clock import DAY_US, HOUR_US, to_datetime
from gateway.metering.activity import Owners, Span, measure
from gateway.metering.rollups.queries import at_once
from gateway.reports.focus import Month, read_month
from gateway.store.database import Database

DAYS = 7  # complete days; the forecast continues their average
HOURS = 24


class Forecast(NamedTuple):
    """Nano-dollars: spent in the month so far, the daily average of the last days, and what the month will cost."""

    month: Month
    spent_nusd: int
    daily_nusd: int
    expected_nusd: int


def forecast_month(database: Database, owners: Owners, now_us: int) -> Forecast:
    """Return the forecast of the current month (UTC). The average is that of the last complete days, at most DAYS, in
    which the owners existed; on the first day with usage it is the usage of this day so far."""
    month = read_month(to_datetime(now_us).strftime("%Y-%m"))
    today = now_us // DAY_US
    first = min(month.start_us // DAY_US, today - DAYS)
    span = Span(first * HOURS, (today + 1) * HOURS, "day")
    costs: dict[int, int] = {}
    for row in at_once(database, lambda: measure(database, owners, span, "total", ("cost_nusd",))):
        costs[row.step] = costs.get(row.step, 0) + row.figures.cost_nusd
    spent = sum(nusd for day, nusd in costs.items() if day * DAY_US >= month.start_us)
    complete = [costs.get(day, 0) for day in range(max(today - DAYS, min(costs, default=today)), today)]
    so_far = costs.get(today, 0)
    if complete:
        daily = sum(complete) // len(complete)
    else:
        daily = so_far * DAY_US // max(HOUR_US, now_us - today * DAY_US)
    left_us = month.end_us - now_us
    return Forecast(month, spent, daily, spent + daily * left_us // DAY_US)
