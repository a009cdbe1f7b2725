"""Sessions of agents, summed from their usage rows: the newest of a project, and one with its models and providers."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from gateway.metering.figures import ActivityFigures, sums_sql
from gateway.metering.log.search import LogScope, owner_conditions
from gateway.metering.usage_table import raw_id
from gateway.store.database import Database

# Rows that one page examines to find the newest sessions.
DEPTH = 5_000
FIGURES = (
    *("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens", "cost_nusd"),
    *("byok_nusd", "storage_nusd", "discount_nusd"),
)
NEWEST = b"\xff" * 16


class SessionPart(NamedTuple):
    """The requests of a session that one key made with one model at one provider."""

    session: str
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


class SessionPage(NamedTuple):
    """A page of sessions. `following`: continue with requests older than this id; None at the end."""

    sessions: list[AgentSession]
    following: bytes | None


def list_sessions(database: Database, scopes: Sequence[LogScope], before: bytes | None, limit: int) -> SessionPage:
    """Return the sessions with the newest requests older than `before`, newest first. A page examines a bounded number
    of rows, so it may be short and still have a following page."""
    return database.view(partial(_list, database, scopes, before or NEWEST, limit))


def find_session(database: Database, scopes: Sequence[LogScope], session: str) -> AgentSession | None:
    """Return the newest session with this id that the scopes include, None if there is none."""

    def read() -> list[AgentSession]:
        return [summary for scope in scopes for summary in _sum(database, scope, [session])]

    return max(database.view(read), key=lambda summary: summary.newest, default=None)


def _list(database: Database, scopes: Sequence[LogScope], before: bytes, limit: int) -> SessionPage:
    rows: list[tuple[bytes, str, LogScope]] = []
    for scope in scopes:
        rows += [(bytes(request), session, scope) for request, session in _newest_rows(database, scope, before)]
    rows.sort(key=lambda row: row[0], reverse=True)
    chosen: dict[tuple[str, str], LogScope] = {}
    following = None
    for number, (_, session, scope) in enumerate(rows):
        if number == DEPTH or len(chosen) == limit and (scope.project_id, session) not in chosen:
            following = rows[number - 1][0]
            break
        chosen[scope.project_id, session] = scope
    sessions = []
    for scope in scopes:
        names = [session for (project_id, session), place in chosen.items() if place is scope]
        sessions += _sum(database, scope, names)
    # A session with a newer request was on an earlier page.
    sessions = [session for session in sessions if session.newest < before]
    return SessionPage(sorted(sessions, key=lambda session: session.newest, reverse=True), following)


def _newest_rows(database: Database, scope: LogScope, before: bytes) -> Iterable[Any]:
    conditions, params = owner_conditions(scope)
    sql = (
        f"SELECT request, session FROM usage WHERE project = ? AND session IS NOT NULL AND request < ?{conditions} "
        "ORDER BY request DESC LIMIT ?"
    )
    return database.fetch(sql, (raw_id(scope.project_id), before, *params, DEPTH + 1))


def _sum(database: Database, scope: LogScope, sessions: Sequence[str]) -> list[AgentSession]:
    if not sessions:
        return []
    conditions, params = owner_conditions(scope)
    sql = (
        "SELECT session, provider, served, api_key, source, SUM(CASE WHEN attempt = 0 AND kind = 0 THEN 1 ELSE 0 END), "
        "SUM(CASE WHEN error IS NULL THEN 0 ELSE 1 END), MIN(at), MAX(at + duration_ms * 1000), "
        f"MAX(request), {sums_sql(database, FIGURES)} FROM usage u "
        f"WHERE project = ? AND session IN ({', '.join('?' * len(sessions))}){conditions} "
        "GROUP BY session, provider, served, api_key, source ORDER BY session, provider, served"
    )
    if database.kind == "postgresql":  # which has no maximum of bytes
        sql = sql.replace("MAX(request)", "decode(MAX(encode(request, 'hex')), 'hex')")
    parts: dict[str, list[SessionPart]] = {}
    for row in database.fetch(sql, (raw_id(scope.project_id), *sessions, *params)):
        figures = ActivityFigures()
        for name, value in zip(FIGURES, row[10:], strict=True):
            setattr(figures, name, int(value))
        session, provider, model, key, source, turns, failures, first_us, last_us, newest = row[:10]
        place = (session, provider, model, bytes(key), source)
        part = SessionPart(*place, int(turns), int(failures), int(first_us), int(last_us), bytes(newest), figures)
        parts.setdefault(session, []).append(part)
    return [AgentSession(scope.project_id, session, tuple(own)) for session, own in parts.items()]
