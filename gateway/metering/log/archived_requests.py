"""The whole request log: requests with usage rows in the database, then older ones with rows in an archive only.

Removal goes forward in time (`rows_begin_us`). Older requests have their attempts in the archive; the entries of
rejected requests and retained payloads remain in the database for as long as their own settings say.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from gateway.errors import Unavailable
from gateway.metering.log.agent_sessions import (
    AgentSession,
    SessionName,
    SessionPart,
    assemble,
    find_newest,
    sum_stored,
)
from gateway.metering.log.records import LoggedRequest, find_request, read_requests
from gateway.metering.log.search import (
    NEWEST,
    FindIds,
    LogFilter,
    LogPage,
    LogScope,
    collect_page,
    find_stored,
    oldest_id,
    search,
)
from gateway.metering.rollups.queries import rows_begin_us
from gateway.metering.usage_table import UsageRecord
from gateway.store.database import Database
from gateway.store.partitions import id_at


class RequestArchive(Protocol):
    """Usage rows outside of the database. The methods with answers raise Unavailable."""

    def is_usable(self) -> bool:
        """Return whether queries should go to this archive."""
        ...

    def begin_us(self) -> int | None:
        """Return the time from which it has all rows; None while it is not usable."""
        ...

    def leave(self) -> None:
        """Send no questions for a moment, because one failed."""
        ...

    def find_ids(
        self, scopes: Sequence[LogScope], filters: LogFilter, oldest: bytes, before: bytes, limit: int
    ) -> list[bytes]:
        """Return ids in [oldest, before) of requests that may match, newest first; no match is left out before the
        last of `limit` ids."""
        ...

    def read_attempts(self, requests: Sequence[bytes]) -> Mapping[bytes, Sequence[UsageRecord]]:
        """Return the attempts of requests, in order."""
        ...

    def find_sessions(self, scopes: Sequence[LogScope], before: bytes, limit: int) -> list[tuple[bytes, SessionName]]:
        """Return the sessions with their newest request before an id, newest first, each with that request."""
        ...

    def sum_sessions(
        self, scopes: Sequence[LogScope], sessions: Sequence[SessionName], before: bytes
    ) -> list[SessionPart]:
        """Return the parts of sessions, of their requests before an id."""
        ...

    def read_latency(
        self, owned: Mapping[str, Sequence[bytes]], provider: str, start_us: int, end_us: int, step_us: int
    ) -> list[list[Any]]:
        """Return for each step with upstream calls its number, the answered and failed ones, and the averages of the
        time to the first content and of the duration in milliseconds (None without any). `owned` has ids by column."""
        ...


def search_log(
    database: Database, scopes: Sequence[LogScope], filters: LogFilter, before: bytes | None, limit: int
) -> LogPage:
    """Return the newest `limit` matches of `filters` that are older than `before`, also archived ones."""
    archive = usable_archive(database)
    begin = begin_of_rows(database) if archive else b""
    if archive is None or not begin:
        return search(database, scopes, filters, before, limit)
    newest = before or NEWEST
    recent: list[LoggedRequest] = []
    if newest > begin:
        page = search(database, scopes, filters, before, limit, begin)
        if page.following is not None:
            return page
        if len(page.requests) == limit:
            return LogPage(page.requests, begin)
        recent = page.requests
    newest = min(newest, begin)
    left = limit - len(recent)
    try:
        older = _search_archive(database, archive, scopes, filters, newest, left)
    except Unavailable:
        archive.leave()
        older = search(database, scopes, filters, newest, left)
    return LogPage([*recent, *older.requests], older.following)


def find_logged(database: Database, request_id: str) -> LoggedRequest | None:
    """Return the request with an id (32 hex digits), also an archived one; None if it is unknown or was deleted."""
    stored = find_request(database, request_id)
    archive = usable_archive(database)
    try:
        request = bytes.fromhex(request_id)
    except ValueError:
        return stored
    if archive is None or request >= begin_of_rows(database):
        return stored
    try:
        archived = _complete(database, archive, [request])
    except Unavailable:
        archive.leave()
        return stored
    return next(iter(archived), stored)


def log_begins_us(database: Database) -> int:
    """Return the time from which the log has all attempts. 0: none were removed."""
    begin_us = database.view(partial(rows_begin_us, database))
    archive = usable_archive(database)
    archived_us = archive.begin_us() if archive else None
    if archived_us is None:
        return begin_us
    return min(begin_us, archived_us)


def _search_archive(
    database: Database,
    archive: RequestArchive,
    scopes: Sequence[LogScope],
    filters: LogFilter,
    before: bytes,
    limit: int,
) -> LogPage:
    find_in_database = find_stored(database, scopes, filters, b"")
    oldest = oldest_id(filters)

    def find(newest: bytes, count: int) -> tuple[list[bytes], bytes | None]:
        stored, bound = database.view(partial(find_in_database, newest, count))
        # Only the database knows which requests have a payload.
        archived = [] if filters.retained else archive.find_ids(scopes, filters, oldest, newest, count)
        if len(archived) == count:
            bound = max(bound or b"", archived[-1])
        requests = sorted({*stored, *archived}, reverse=True)
        return [request for request in requests if bound is None or request >= bound], bound

    finder: FindIds = find
    return collect_page(finder, partial(_complete, database, archive), scopes, filters, before, limit)


def _complete(database: Database, archive: RequestArchive, requests: Sequence[bytes]) -> list[LoggedRequest]:
    """Return these requests, in their order: attempts from the archive, the rest from the database."""
    if not requests:
        return []
    stored = {record.request: record for record in database.view(partial(read_requests, database, requests))}
    archived = archive.read_attempts(requests)
    records = []
    for request in requests:
        record = stored.get(request) or LoggedRequest(request)
        attempts = tuple(archived.get(request) or record.attempts)
        records.append(replace(record, attempts=attempts))
    return [record for record in records if record.attempts or record.entry or record.payload]


def usable_archive(database: Database) -> RequestArchive | None:
    """Return the archive if queries should go there."""
    archive: RequestArchive | None = database.archive
    if archive is not None and archive.is_usable():
        return archive
    return None


def begin_of_rows(database: Database) -> bytes:
    """Return the first id with all of its usage rows; b"" if no rows were removed."""
    begin_us = database.view(partial(rows_begin_us, database))
    if begin_us:
        return id_at(begin_us)
    return b""


# All sessions of agents: requests with usage rows in the database, and older ones with rows in an archive only.
#
# A session may have both. Requests from the first id with all of its rows in the database on are summed there, older
# ones in the archive, so each row counts once.


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
