"""Sessions of agents, summed from their usage rows in the database: the newest of a project, and the parts of one."""

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from operator import itemgetter
from typing import Any, NamedTuple

from gateway.metering.figures import ActivityFigures, sums_sql
from gateway.metering.log.search import LogScope, owner_conditions
from gateway.metering.usage_table import raw_id
from gateway.store.database import Database

# Rows that one page examines to find the newest sessions.
DEPTH = 5_000
FIRST_ROWS = 100  # of each scope in the first statement
FIGURES = (
    *("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens", "cost_nusd"),
    *("byok_nusd", "storage_nusd", "discount_nusd"),
)


class SessionName(NamedTuple):
    """The name of a session, which is unique within its project."""

    project_id: str
    session: str


class SessionPart(NamedTuple):
    """The requests of a session that one key made with one model at one provider."""

    name: SessionName
    provider: str
    model: str
    api_key: bytes
    source: str
    turns: int
    failures: int
    first_us: int
    last_us: int
    newest: bytes
    figures: ActivityFigures


class AgentSession(NamedTuple):
    """A session of a project. `turns` are its requests, `failures` the upstream calls that failed."""

    project_id: str
    session: str
    parts: tuple[SessionPart, ...]

    @property
    def figures(self) -> ActivityFigures:
        total = ActivityFigures()
        for part in self.parts:
            total.add(part.figures)
        return total

    @property
    def turns(self) -> int:
        return sum(part.turns for part in self.parts)

    @property
    def failures(self) -> int:
        return sum(part.failures for part in self.parts)

    @property
    def first_us(self) -> int:
        return min(part.first_us for part in self.parts)

    @property
    def last_us(self) -> int:
        return max(part.last_us for part in self.parts)

    @property
    def newest(self) -> bytes:
        """The id of its newest request."""
        return max(part.newest for part in self.parts)


class NewestSessions(NamedTuple):
    """Names of sessions, newest first. `following`: continue with requests older than this id; None at the end."""

    names: list[SessionName]
    following: bytes | None


def find_newest(
    database: Database, scopes: Sequence[LogScope], oldest: bytes, before: bytes, limit: int
) -> NewestSessions:
    """Return the sessions with the newest requests in [oldest, before). A bounded number of rows is examined, so there
    may be fewer than `limit` and still following ones. Call it inside a read."""
    newest = [_newest_rows(database, scope, oldest, before) for scope in scopes]
    chosen: dict[SessionName, None] = {}
    following = before
    for number, (request, name) in enumerate(merge(*newest, key=itemgetter(0), reverse=True)):
        if number == DEPTH or (len(chosen) == limit and name not in chosen):
            return NewestSessions(list(chosen), following)
        chosen[name] = None
        following = request
    return NewestSessions(list(chosen), None)


def sum_stored(
    database: Database, scopes: Sequence[LogScope], names: Sequence[SessionName], oldest: bytes
) -> list[SessionPart]:
    """Return the parts of sessions, of their requests from an id on. Call it inside a read."""
    parts = []
    for scope in scopes:
        sessions = [name.session for name in names if name.project_id == scope.project_id]
        if sessions:
            parts += _sum(database, scope, sessions, oldest)
    return parts


def assemble(parts: Iterable[SessionPart]) -> list[AgentSession]:
    """Return sessions with these parts, newest first; parts of the same key, model, provider and source are added."""
    sessions: dict[SessionName, dict[tuple[Any, ...], SessionPart]] = {}
    for part in parts:
        own = sessions.setdefault(part.name, {})
        place = (part.provider, part.model, part.api_key, part.source)
        own[place] = _add(own[place], part) if place in own else part
    assembled = [AgentSession(*name, tuple(own[place] for place in sorted(own))) for name, own in sessions.items()]
    return sorted(assembled, key=lambda session: session.newest, reverse=True)


def part_of_row(project_id: str, row: Sequence[Any]) -> SessionPart:
    """Return the part of a row: the columns of a SessionPart in their order, with the figures FIGURES."""
    session, provider, model, key, source, turns, failures, first_us, last_us, newest = row[:10]
    figures = ActivityFigures()
    for figure, value in zip(FIGURES, row[10:], strict=True):
        setattr(figures, figure, int(value))
    counts = (int(turns), int(failures), int(first_us), int(last_us))
    return SessionPart(
        SessionName(project_id, session), provider, model, bytes(key), source, *counts, bytes(newest), figures
    )


def _add(part: SessionPart, other: SessionPart) -> SessionPart:
    figures = ActivityFigures()
    figures.add(part.figures)
    figures.add(other.figures)
    return part._replace(
        turns=part.turns + other.turns,
        failures=part.failures + other.failures,
        first_us=min(part.first_us, other.first_us),
        last_us=max(part.last_us, other.last_us),
        newest=max(part.newest, other.newest),
        figures=figures,
    )


def _newest_rows(
    database: Database, scope: LogScope, oldest: bytes, before: bytes
) -> Iterator[tuple[bytes, SessionName]]:
    """Yield the newest requests of a scope with their sessions. Each statement reads twice as many rows as the one
    before, because few of many projects have the newest requests."""
    conditions, params = owner_conditions(scope)
    sql = (
        "SELECT request, session FROM usage WHERE project = ? AND session IS NOT NULL AND request >= ? "
        f"AND request < ?{conditions} ORDER BY request DESC LIMIT ?"
    )
    limit = FIRST_ROWS
    while True:
        rows = database.fetch(sql, (raw_id(scope.project_id), oldest, before, *params, limit))
        for request, session in rows:
            before = bytes(request)
            yield before, SessionName(scope.project_id, session)
        if len(rows) < limit:
            return
        limit *= 2


def _sum(database: Database, scope: LogScope, sessions: Sequence[str], oldest: bytes) -> list[SessionPart]:
    conditions, params = owner_conditions(scope)
    sql = (
        "SELECT session, provider, served, api_key, source, SUM(CASE WHEN attempt = 0 AND kind = 0 THEN 1 ELSE 0 END), "
        "SUM(CASE WHEN error IS NULL THEN 0 ELSE 1 END), MIN(at), MAX(at + duration_ms * 1000), "
        f"MAX(request), {sums_sql(database, FIGURES)} FROM usage u "
        f"WHERE project = ? AND session IN ({', '.join('?' * len(sessions))}) AND request >= ?{conditions} "
        "GROUP BY session, provider, served, api_key, source"
    )
    if database.kind == "postgresql":  # which has no maximum of bytes
        sql = sql.replace("MAX(request)", "decode(MAX(encode(request, 'hex')), 'hex')")
    rows = database.fetch(sql, (raw_id(scope.project_id), *sessions, oldest, *params))
    return [part_of_row(scope.project_id, row) for row in rows]
