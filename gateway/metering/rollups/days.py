"""Sums of UTC days and of blocks of days. A day is computed from its hours once it is over, a block from its days; late
rows cause both to be computed again.

Blocks serve reports of a year, which would otherwise read 366 rows for each model. A block has 32 days, counted from
the epoch; calendar months would not help, because reports rarely begin with a month.
"""

import random
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from gateway.metering.figures import FIGURES
from gateway.metering.rollups.rollup_table import (
    BLOCK_DAYS,
    BLOCK_HOURS,
    BLOCKS,
    DAILY,
    HOURS,
    State,
    advance_state,
    read_state,
    run_sums,
)
from gateway.runtime.loop_turns import ShouldContinue
from gateway.runtime.threads import pause
from gateway.store.database import Database

# A day is computed this many hours after its end.
AFTER_HOURS = 1
STEP_ROWS = 1_000  # rows that one transaction reads
PAUSE_S = 0.01

MERGED = ", ".join(f"NULLIF(sum({name}), 0)" for name in ("rows", *FIGURES))
COARSE = f"""
INSERT INTO rollup (series, owner, hour, part, name, provider, updated_at, rows, {", ".join(FIGURES)})
SELECT series + {{more}}, owner, ?, 0, name, provider, MAX(updated_at), {MERGED} FROM rollup
WHERE series = ? AND owner IN ({{marks}}) AND hour >= ? AND hour < ? GROUP BY series, owner, name, provider
"""


class SumStep(NamedTuple):
    """How sums of `hours` hours are computed. The number of a series plus `coarse` is the series of the result, plus
    `fine` that of the input. `lock` locks the mark of a day or block that is not computed yet."""

    coarse: int
    fine: int
    hours: int
    lock: str = ""


DAY = SumStep(DAILY, 0, HOURS, "UPDATE rollup_day SET stamp = stamp WHERE day = ?")
BLOCK = SumStep(BLOCKS, DAILY, BLOCK_HOURS, "UPDATE rollup_block SET stamp = stamp WHERE block = ? AND made = 0")


def sum_up(database: Database, state: State, now_hour: int, should_continue: ShouldContinue) -> None:
    """Compute the days and blocks that are over and either missing or changed."""
    end = (now_hour - AFTER_HOURS) // HOURS
    for day in database.report(partial(_list_days, database, state, end)):
        if not should_continue():
            return
        _make_day(database, day)
    if state.days_through < end:
        database.write(lambda: advance_state(database, state, days_through=end))
    for block in database.report(partial(_list_blocks, database)):
        if not should_continue():
            return
        _make_block(database, block)


def list_blocks(database: Database, first: int, end: int) -> list[int]:
    """Return the blocks in [first, end) that are computed, in order. Inside a read."""
    sql = "SELECT block FROM rollup_block WHERE made = 1 AND block >= ? AND block < ? ORDER BY block"
    return [int(block) for (block,) in database.fetch(sql, (first, end))]


def _list_days(database: Database, state: State, end: int) -> list[int]:
    changed = "SELECT day FROM rollup_day WHERE day < ?"
    new = f"SELECT DISTINCT hour / {HOURS} FROM rollup_hour WHERE hour >= ? AND hour < ?"
    rows = database.fetch(changed, (end,))
    rows += database.fetch(new, (state.days_through * HOURS, end * HOURS))
    return sorted({int(day) for (day,) in rows})


def _list_blocks(database: Database) -> list[int]:
    """Return blocks with usage that are missing although all of their days are computed."""
    state = read_state(database)
    if state is None:
        return []
    sql = f"SELECT DISTINCT hour / {BLOCK_HOURS} FROM rollup_hour WHERE hour < ?"
    end = state.days_through // BLOCK_DAYS
    used = {int(block) for (block,) in database.fetch(sql, (end * BLOCK_HOURS,))}
    return sorted(used - set(list_blocks(database, 0, end)) - _list_open(database))


def _list_open(database: Database) -> set[int]:
    """Return the blocks with days that have to be computed again."""
    return {int(day) // BLOCK_DAYS for (day,) in database.fetch("SELECT day FROM rollup_day")}


def _make_day(database: Database, day: int) -> None:
    """Compute a day in small transactions; it counts as computed only if it was not changed meanwhile."""
    stamp = database.write(partial(_begin_day, database, day))
    _make(database, DAY, day * HOURS)
    database.write(lambda: database.execute("DELETE FROM rollup_day WHERE day = ? AND stamp = ?", (day, stamp)))


def _make_block(database: Database, block: int) -> None:
    """Compute a block likewise. A change to one of its days deletes the block's row, and with it the stamp."""
    stamp = random.getrandbits(62)
    if not database.write(partial(_begin_block, database, block, stamp)):
        return
    _make(database, BLOCK, block * BLOCK_HOURS)
    sql = "UPDATE rollup_block SET made = 1 WHERE block = ? AND stamp = ?"
    database.write(lambda: database.execute(sql, (block, stamp)))


def _begin_day(database: Database, day: int) -> int:
    """Mark the day as changed; return the stamp of the mark."""
    sql = "INSERT INTO rollup_day (day, stamp) VALUES (?, 0) ON CONFLICT (day) DO NOTHING"
    database.execute(sql, (day,))
    return int(database.execute("SELECT stamp FROM rollup_day WHERE day = ?", (day,)).fetchone()[0])


def _begin_block(database: Database, block: int, stamp: int) -> bool:
    sql = (
        "INSERT INTO rollup_block (block, stamp, made) VALUES (?, ?, 0) "
        "ON CONFLICT (block) DO UPDATE SET stamp = excluded.stamp, made = 0"
    )
    database.execute(sql, (block, stamp))
    return block not in _list_open(database)


def _make(database: Database, step: SumStep, first: int) -> None:
    """Replace the coarse sums of the hours from `first` on."""
    sql = (
        f"SELECT series & {DAILY - 1}, owner, COUNT(*) FROM rollup WHERE hour >= ? AND hour < ? "
        "AND (series >= ? AND series < ? OR series >= ? AND series < ?) "
        f"GROUP BY series & {DAILY - 1}, owner ORDER BY 1, 2"
    )
    series = (step.fine, step.fine + DAILY, step.coarse, step.coarse + DAILY)
    counts = database.report(lambda: database.fetch(sql, (first, first + step.hours, *series)))
    for owned in _steps([(int(number), bytes(owner), count) for number, owner, count in counts]):
        if not database.write(partial(_write, database, step, first, owned)):
            return
        pause(PAUSE_S)


def _steps(counts: list[tuple[int, bytes, int]]) -> Iterator[list[tuple[int, bytes]]]:
    """Yield lists of (series, owner) that have about STEP_ROWS rows each."""
    step: list[tuple[int, bytes]] = []
    held = 0
    for series, owner, count in counts:
        step.append((series, owner))
        held += count
        if held >= STEP_ROWS:
            yield step
            step = []
            held = 0
    if step:
        yield step


def _write(database: Database, step: SumStep, first: int, owned: list[tuple[int, bytes]]) -> bool:
    """Replace sums of some owners. Return False if another worker finished the day or block meanwhile, or it changed.
    While both compute it, one waits here for the other, and then replaces what that one wrote."""
    if not database.execute(step.lock, (first // step.hours,)).rowcount:
        return False
    for series, group in groupby(owned, key=itemgetter(0)):
        owners = [owner for _, owner in group]
        marks = ", ".join("?" * len(owners))
        delete = f"DELETE FROM rollup WHERE series = ? AND owner IN ({marks}) AND hour = ?"
        database.execute(delete, (series + step.coarse, *owners, first))
        params = (first, series + step.fine, *owners, first, first + step.hours)
        run_sums(database, COARSE.format(more=step.coarse - step.fine, marks=marks), params)
    return True
