"""All sessions of agents: requests with usage rows in the database, and older ones with rows in an archive only.

A session may have both. Requests from the first id with all of its rows in the database on are summed there, older ones
in the archive, so each row counts once.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from gateway.errors import Unavailable
from gateway.metering.log.agent_sessions import AgentSession, SessionName, assemble, find_newest, sum_stored
from gateway.metering.log.archived_requests import RequestArchive, begin_of_rows, usable_archive
from gateway.metering.log.search import NEWEST, LogScope
from gateway.store.database import Database


class SessionPage(NamedTuple):
    """A page of sessions. `following`: continue with requests older than this id; None at the end."""

    sessions: list[AgentSession]
    following: bytes | None


def list_sessions(database: Database, scopes: Sequence[LogScope], before: bytes | None, limit: int) -> SessionPage:
    """Return the sessions with the newest requests older than `before`, newest first, also archived ones. A page
    examines a bounded number of rows, so it may be short and still have a following page."""
    newest = before or NEWEST
    archive = usable_archive(database)
    begin = begin_of_rows(database) if archive else b""
    if archive is not None and begin:
        try:
            return _list_all(database, archive, begin, scopes, newest, limit)
        except Unavailable:
            archive.leave()
    return database.view(partial(_list_stored, database, scopes, newest, limit))


def find_session(database: Database, scopes: Sequence[LogScope], session: str) -> AgentSession | None:
    """Return the newest session with this id that the scopes include, None if there is none."""
    names = [SessionName(scope.project_id, session) for scope in scopes]
    archive = usable_archive(database)
    begin = begin_of_rows(database) if archive else b""
    if archive is not None and begin:
        try:
            return next(iter(_sum_all(database, archive, begin, scopes, names)), None)
        except Unavailable:
            archive.leave()
    stored = database.view(partial(sum_stored, database, scopes, names, b""))
    return next(iter(assemble(stored)), None)


def _list_stored(database: Database, scopes: Sequence[LogScope], before: bytes, limit: int) -> SessionPage:
    names, following = find_newest(database, scopes, b"", before, limit)
    return _page(assemble(sum_stored(database, scopes, names, b"")), before, following)


def _list_all(
    database: Database, archive: RequestArchive, begin: bytes, scopes: Sequence[LogScope], before: bytes, limit: int
) -> SessionPage:
    names: list[SessionName] = []
    following = None
    if before > begin:
        names, following = database.view(partial(find_newest, database, scopes, begin, before, limit))
    left = limit - len(names)
    if following is None and not left:
        following = begin
    if following is None:
        archived = archive.find_sessions(scopes, min(before, begin), left + 1)
        if len(archived) > left:
            following = archived[left - 1][0]
        names = list(dict.fromkeys([*names, *(name for _, name in archived[:left])]))
    return _page(_sum_all(database, archive, begin, scopes, names), before, following)


def _sum_all(
    database: Database, archive: RequestArchive, begin: bytes, scopes: Sequence[LogScope], names: Sequence[SessionName]
) -> list[AgentSession]:
    if not names:
        return []
    stored = database.view(partial(sum_stored, database, scopes, names, begin))
    return assemble([*stored, *archive.sum_sessions(scopes, names, begin)])


def _page(sessions: list[AgentSession], before: bytes, following: bytes | None) -> SessionPage:
    """Return a page without sessions that were on an earlier one, because they have a newer request."""
    return SessionPage([session for session in sessions if session.newest < before], following)
