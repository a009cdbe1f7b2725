"""Sums of days in UTC, made of those of their hours once they are over; what comes later makes a day anew."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby

from gateway.metering.figures import FIGURES
from gateway.metering.rollups.table import DAILY, HELD, HOURS, State, advance_state, run_sums
from gateway.store.database import Database
from gateway.threads import pause

# A day is summed up so many hours after its end.
AFTER_HOURS = 1
STEP_ROWS = 2_000  # of the hours, in one transaction
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
    sql = (
        f"SELECT series & {DAILY - 1}, owner, COUNT(*) FROM rollup WHERE hour >= ? AND hour < ? "
        f"GROUP BY series & {DAILY - 1}, owner ORDER BY 1, 2"
    )
    found = database.report(lambda: database.execute(sql, (first, first + HOURS)).fetchall())
    for step in _steps([(int(series), bytes(owner), count) for series, owner, count in found]):
        database.write(partial(_write, database, day, step))
        pause(REST_S)
    database.write(lambda: database.execute("DELETE FROM rollup_day WHERE day = ? AND stamp = ?", (day, stamp)))


def _steps(found: list[tuple[int, bytes, int]]) -> Iterator[list[tuple[int, bytes]]]:
    """Series and owners, so many at once as have some thousand rows."""
    step: list[tuple[int, bytes]] = []
    held = 0
    for series, owner, count in found:
        step.append((series, owner))
        held += count
        if held >= STEP_ROWS:
            yield step
            step, held = [], 0
    if step:
        yield step


def _begin(database: Database, day: int) -> int:
    """Mark the day as not made; the mark that it has now."""
    sql = "INSERT INTO rollup_day (day, stamp) VALUES (?, 0) ON CONFLICT (day) DO NOTHING"
    database.execute(sql, (day,))
    return int(database.execute("SELECT stamp FROM rollup_day WHERE day = ?", (day,)).fetchone()[0])


def _write(database: Database, day: int, step: list[tuple[int, bytes]]) -> None:
    first = day * HOURS
    for series, group in groupby(step, key=lambda one: one[0]):
        owners = [owner for _, owner in group]
        marks = ", ".join("?" * len(owners))
        delete = f"DELETE FROM rollup WHERE series = ? AND owner IN ({marks}) AND hour = ?"
        database.execute(delete, (series + DAILY, *owners, first))
        run_sums(database, DAY.format(marks=marks), (first, series, *owners, first, first + HOURS))
