"""Sums of outcomes over a time, by hour, day or week or in total, and by key, session, model or repository."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import Struct, field

from gateway.metering.activity import Owners, Span
from gateway.metering.outcomes.names import OUTCOMES
from gateway.metering.outcomes.outcome_table import OTHER
from gateway.metering.rollups.queries import bucket_sql
from gateway.metering.usage_table import raw_id
from gateway.store.database import Database

OutcomeDimension = Literal["total", "api_key", "session", "model", "repository"]
COLUMNS: dict[OutcomeDimension, str] = {
    "total": "''",
    "api_key": "api_key",
    "session": "session",
    "model": "model",
    "repository": "repository",
}
MAX_OWNERS = 2_000  # of one statement
SUMS = ", ".join(f"SUM({name})" for name in OUTCOMES)


class OutcomeFigures(Struct):
    """Counts of outcomes, and milliseconds of active time."""

    sessions: int = 0
    commits: int = 0
    pull_requests: int = 0
    lines_added: int = 0
    lines_removed: int = 0
    edits_accepted: int = 0
    edits_rejected: int = 0
    active_ms: int = 0

    @property
    def active_seconds(self) -> float:
        return self.active_ms / 1000

    def add(self, other: "OutcomeFigures") -> None:
        for name in OUTCOMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class OutcomeRow(Struct):
    """The outcomes of one step (as in `rollups.queries.Row`) and one value of a dimension."""

    step: int
    value: str
    figures: OutcomeFigures = field(default_factory=OutcomeFigures)


def sum_outcomes(database: Database, owners: Owners, span: Span, dimension: OutcomeDimension) -> list[OutcomeRow]:
    """Return the outcomes of whole projects and of keys, in no order; inside a read."""
    found: dict[tuple[int, str], OutcomeRow] = {}
    for column, idents in (("project", owners.project_ids), ("api_key", owners.key_ids)):
        for start in range(0, len(idents), MAX_OWNERS):
            some = [raw_id(ident) for ident in idents[start : start + MAX_OWNERS]]
            for first, end, minutes in _runs(span):
                for step, value, *sums in database.fetch(
                    *_statement(column, some, COLUMNS[dimension], bucket_sql(span.step, minutes), first, end)
                ):
                    shown = f"key_{bytes(value).hex()}" if dimension == "api_key" else str(value)
                    row = found.setdefault((int(step), shown), OutcomeRow(int(step), shown))
                    row.figures.add(OutcomeFigures(*map(int, sums)))
    return list(found.values())


def _runs(span: Span) -> Iterable[tuple[int, int, int | None]]:
    """Return runs of hours with the minutes by which the time zone is ahead."""
    if not span.shifts:
        return [(span.first, span.end, None)]
    ends = (*(hour for hour, _ in span.shifts[1:]), span.end)
    runs = zip(span.shifts, ends, strict=True)
    return [(max(span.first, begin), min(span.end, end), minutes) for (begin, minutes), end in runs]


def _statement(
    column: str, owners: Sequence[bytes], shown: str, bucket: str, first: int, end: int
) -> tuple[str, tuple[Any, ...]]:
    marks = ", ".join("?" * len(owners))
    sql = (
        f"SELECT {bucket}, {shown}, {SUMS} FROM outcome WHERE {column} IN ({marks}) AND hour >= ? AND hour < ? "
        "GROUP BY 1, 2"
    )
    return sql, (*owners, first, end)


class KeySession(NamedTuple):
    """A session of a key: others may use the same name."""

    key_id: str
    session: str


def list_repositories(database: Database, owners: Owners, span: Span, maximum: int) -> dict[KeySession, str]:
    """Return the repository of each session that reported one, for the sessions with the most accepted edits; inside a
    read. The last one of a session counts."""
    found: dict[KeySession, tuple[int, int, str]] = {}
    for column, idents in (("project", owners.project_ids), ("api_key", owners.key_ids)):
        for start in range(0, len(idents), MAX_OWNERS):
            some = [raw_id(ident) for ident in idents[start : start + MAX_OWNERS]]
            sql = (
                f"SELECT api_key, session, repository, MAX(hour), SUM(edits_accepted) FROM outcome WHERE {column} IN "
                f"({', '.join('?' * len(some))}) AND hour >= ? AND hour < ? AND repository <> '' "
                "AND session NOT IN ('', ?) GROUP BY api_key, session, repository ORDER BY 5 DESC, 1, 2, 3 LIMIT ?"
            )
            params = (*some, span.first, span.end, OTHER, maximum)
            for key, session, repository, hour, edits in database.fetch(sql, params):
                place = KeySession(f"key_{bytes(key).hex()}", str(session))
                last, most, name = found.get(place, (-1, 0, ""))
                newest = (int(hour), repository) > (last, name)
                best = (int(hour), repository) if newest else (last, name)
                found[place] = (best[0], most + int(edits), best[1])
    ranked = sorted(found.items(), key=lambda item: (-item[1][1], item[0]))[:maximum]
    return {place: repository for place, (_, _, repository) in ranked}


def list_reporters(
    database: Database, owners: Owners, span: Span, dimension: OutcomeDimension
) -> dict[str, frozenset[str]]:
    """Return the keys that reported something with each value; inside a read."""
    found: dict[str, set[str]] = {}
    for column, idents in (("project", owners.project_ids), ("api_key", owners.key_ids)):
        for start in range(0, len(idents), MAX_OWNERS):
            some = [raw_id(ident) for ident in idents[start : start + MAX_OWNERS]]
            sql = (
                f"SELECT DISTINCT {COLUMNS[dimension]}, api_key FROM outcome WHERE {column} IN "
                f"({', '.join('?' * len(some))}) AND hour >= ? AND hour < ?"
            )
            for value, key in database.fetch(sql, (*some, span.first, span.end)):
                found.setdefault(str(value), set()).add(f"key_{bytes(key).hex()}")
    return {value: frozenset(keys) for value, keys in found.items()}


class MemberOutcome(Struct, frozen=True):
    """The outcomes that the agents of a member reported on a day (UTC, since the epoch)."""

    day: int
    agent: str
    figures: OutcomeFigures


def list_of_member(database: Database, member_id: str) -> list[MemberOutcome]:
    """Return the outcomes of all keys of a member by day and agent, the oldest first; inside a read."""
    sql = f"SELECT hour / 24, agent, {SUMS} FROM outcome WHERE api_key IN ({{marks}}) GROUP BY 1, 2 ORDER BY 1, 2"
    keys = [raw_id(key_id) for (key_id,) in database.fetch("SELECT id FROM api_key WHERE member_id = ?", (member_id,))]
    if not keys:
        return []
    rows = database.fetch(sql.format(marks=", ".join("?" * len(keys))), keys)
    return [MemberOutcome(int(day), agent, OutcomeFigures(*map(int, sums))) for day, agent, *sums in rows]
