"""Sums of days in UTC, made of those of their hours once they are over; what comes later makes a day anew."""

from collections.abc import Callable
from functools import partial

from gateway.metering.figures import FIGURES
from gateway.metering.rollups.table import DAILY, HELD, HOURS, State, advance_state, run_sums
from gateway.store.database import Database
from gateway.threads import pause

# A day is summed up so many hours after its end.
AFTER_HOURS = 1
OWNERS = 20  # in one transaction
REST_S = 0.01

MERGED = ", ".join(f"NULLIF(sum({name}), 0)" for name in ("rows", *FIGURES))
DAY = f"""
INSERT INTO rollup (series, owner, hour, part, name, provider, updated_at, rows, {", ".join(FIGURES)})
SELECT series + {DAILY}, owner, ?, {HELD}, name, provider, MAX(updated_at), {MERGED} FROM rollup
WHERE series = ? AND owner IN ({{marks}}) AND hour >= ? AND hour < ? GROUP BY series, owner, name, provider
"""


def sum_up(database: Database, state: State, now_hour: int, go_on: Callable[[], bool]) -> None:
    """Make the days that are over and not made, or were touched since."""
    end = (now_hour - AFTER_HOURS) // HOURS
    for day in database.report(partial(_list_days, database, state, end)):
        if not go_on():
            return
        _make(database, day)
    if state.days_through < end:
        database.write(lambda: advance_state(database, state, days_through=end))


def _list_days(database: Database, state: State, end: int) -> list[int]:
    touched = "SELECT day FROM rollup_day WHERE day < ?"
    new = f"SELECT DISTINCT hour / {HOURS} FROM rollup_hour WHERE hour >= ? AND hour < ?"
    found = database.execute(touched, (end,)).fetchall()
    found += database.execute(new, (state.days_through * HOURS, end * HOURS)).fetchall()
    return sorted({int(day) for (day,) in found})


def _make(database: Database, day: int) -> None:
    """Sum up a day in small transactions; it counts as made only if nobody touched it meanwhile."""
    stamp = database.write(partial(_begin, database, day))
    first = day * HOURS
    sql = "SELECT DISTINCT series, owner FROM rollup WHERE hour >= ? AND hour < ?"
    found = database.report(lambda: database.execute(sql, (first, first + HOURS)).fetchall())
    owners: dict[int, set[bytes]] = {}
    for series, owner in found:
        owners.setdefault(int(series) % DAILY, set()).add(bytes(owner))
    for series, members in sorted(owners.items()):
        idents = sorted(members)
        for start in range(0, len(idents), OWNERS):
            database.write(partial(_write, database, day, series, idents[start : start + OWNERS]))
            pause(REST_S)
    database.write(lambda: database.execute("DELETE FROM rollup_day WHERE day = ? AND stamp = ?", (day, stamp)))


def _begin(database: Database, day: int) -> int:
    """Mark the day as not made; the mark that it has now."""
    sql = "INSERT INTO rollup_day (day, stamp) VALUES (?, 0) ON CONFLICT (day) DO NOTHING"
    database.execute(sql, (day,))
    return int(database.execute("SELECT stamp FROM rollup_day WHERE day = ?", (day,)).fetchone()[0])


def _write(database: Database, day: int, series: int, owners: list[bytes]) -> None:
    first, marks = day * HOURS, ", ".join("?" * len(owners))
    delete = f"DELETE FROM rollup WHERE series = ? AND owner IN ({marks}) AND hour = ?"
    database.execute(delete, (series + DAILY, *owners, first))
    run_sums(database, DAY.format(marks=marks), (first, series, *owners, first, first + HOURS))
