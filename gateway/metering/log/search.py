"""Search of the request log: newest first, page by page; each page reads a bounded number of rows.

Usage rows and log entries are two sources in one order, that of request ids. Each source is read through an index in
that order. Conditions without an index are checked for the next `DEPTH` rows of a source. A page may therefore be short
or empty although older matches exist; its `following` is the id at which to continue.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from gateway.clock import HOUR_US
from gateway.errors import Cancelled
from gateway.metering.log.log_entries import first_id, tag_of
from gateway.metering.log.records import LoggedRequest, read_requests
from gateway.metering.rollups.rollup_table import Series, read_state
from gateway.metering.rollups.row_sums import START_MARGIN_US
from gateway.metering.usage_table import raw_id
from gateway.store.database import Database
from gateway.store.partitions import id_at, time_of

# The hours in which keys were used, from the rollups: a search skips all other hours, and lists of keys show the
# last.
#
# There is no index of usage rows by key: maintaining it would cost every request as much as it saves a search.

# Hours of a key that one query reads.
MAX_HOURS = 100
USED_HOURS = (
    "SELECT DISTINCT hour FROM rollup WHERE series = ? AND owner = ? AND hour >= ? AND hour <= ? ORDER BY hour DESC"
)
# One seek to the end of each key's range of the primary key.
LAST_HOUR = "SELECT column1, (SELECT MAX(hour) FROM rollup WHERE series = ? AND owner = column1) FROM (VALUES {}) given"
MAX_KEYS = 500  # keys of one statement


class Ranges(NamedTuple):
    """Ranges [low, high) of request ids, newest first and disjoint. `whole`: no older ranges exist; otherwise there may
    be some."""

    ranges: list[tuple[bytes, bytes]]
    whole: bool


def used_within(database: Database, keys: Sequence[bytes], oldest: bytes, before: bytes) -> Ranges | None:
    """Return where in [oldest, before) requests of the keys may lie; None while the rollups are incomplete. Inside a
    read."""
    state = read_state(database)
    if state is None or state.filling:
        return None
    # Rows that were posted since the last round are in no rollup yet.
    recent = state.watermark - 2 * START_MARGIN_US
    first = time_of(oldest or bytes(16)) // HOUR_US
    last = time_of(before) // HOUR_US + 1
    hours: set[int] = set()
    minimum = 0
    for key in keys:
        params = (Series.KEY, key, first, min(last, 2**31 - 1), MAX_HOURS)
        used = [int(row[0]) for row in database.execute(f"{USED_HOURS} LIMIT ?", params).fetchall()]
        hours.update(used)
        if len(used) == MAX_HOURS:
            minimum = max(minimum, used[-1])
    spans = [(hour * HOUR_US - START_MARGIN_US, (hour + 1) * HOUR_US) for hour in hours if hour >= minimum]
    merged = _merge([(recent, time_of(b"\xff" * 16)), *spans])
    ranges = [(max(oldest, id_at(low)), min(before, id_at(high))) for low, high in merged]
    return Ranges([(low, high) for low, high in ranges if low < high], not minimum)


def find_last_hours(database: Database, key_ids: Sequence[str]) -> dict[str, int]:
    """Return the start of the hour in which each key was last used, in µs, without keys that were not used."""
    last_us = {}
    for start in range(0, len(key_ids), MAX_KEYS):
        some = {raw_id(key_id): key_id for key_id in key_ids[start : start + MAX_KEYS]}
        sql = LAST_HOUR.format(", ".join(["(?)"] * len(some)))
        rows = database.view(partial(database.fetch, sql, (Series.KEY, *some)))
        last_us.update({some[bytes(key)]: int(hour) * HOUR_US for key, hour in rows if hour is not None})
    return last_us


def _merge(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge overlapping spans, newest first."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(spans, key=lambda span: span[1], reverse=True):
        if merged and high >= merged[-1][0]:
            merged[-1] = min(low, merged[-1][0]), merged[-1][1]
        else:
            merged.append((low, high))
    return merged


# Rows of a source that one round checks for conditions without an index, and the rounds of a page.
DEPTH = 5_000
ROUNDS = 3
NEWEST = b"\xff" * 16


class LogScope(NamedTuple):
    """The visible requests of a project: all, or only those of `member_id` or of the keys `key_ids`. A member's keys
    are not listed if they are too many for one query each."""

    project_id: str
    member_id: str = ""
    key_ids: tuple[str, ...] = ()


class LogFilter(NamedTuple):
    """Conditions on requests; "" and None match all. `model` matches the requested model, the served one, or
    provider/model. `provider`, `model` and `error` match when any attempt matches. All `tags` must be present. Requests
    arrived within [from_us, to_us), to the millisecond. `retained`: only requests with a stored payload; `session`:
    only those of an agent's session; `failed`: only those that failed. `min_ms` and `min_nusd`: any attempt took, or
    cost, at least so much. `no_error`: any attempt was answered; `no_session`: only ones outside of sessions."""

    model: str = ""
    provider: str = ""
    status: int = 0
    error: str = ""
    source: str | None = None
    label: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    from_us: int | None = None
    to_us: int | None = None
    retained: bool = False
    session: str = ""
    failed: bool = False
    min_ms: int = 0
    min_nusd: int = 0
    operation: str = ""
    no_error: bool = False
    no_session: bool = False


class LogPage(NamedTuple):
    """A page of matches. `following`: continue with requests older than this id; None at the end."""

    requests: list[LoggedRequest]
    following: bytes | None


Condition = tuple[str, tuple[Any, ...]]
# Takes the id to continue before, and a number. Returns ids, newest first, and the id down to which all are known
# (None: to the end).
FindIds = Callable[[bytes, int], tuple[list[bytes], bytes | None]]
ReadRequests = Callable[[Sequence[bytes]], list[LoggedRequest]]


class _Source(NamedTuple):
    """Rows of one table in the order of requests. `base` is decided by an index, `more` is not. With `keys` only rows
    of these keys are read; the rollups show when the keys were used."""

    table: str
    base: tuple[tuple[str, Any], ...]
    more: tuple[Condition, ...] = ()
    keys: tuple[bytes, ...] = ()


def search(
    database: Database,
    scopes: Sequence[LogScope],
    filters: LogFilter,
    before: bytes | None,
    limit: int,
    oldest: bytes = b"",
) -> LogPage:
    """Return the newest `limit` matches of `filters` that are older than `before` and not older than `oldest`, of the
    rows in the database. A replica may lack the newest."""
    return database.view(partial(_search, database, scopes, filters, before or NEWEST, limit, oldest))


def search_current(database: Database, scopes: Sequence[LogScope], filters: LogFilter) -> LoggedRequest | None:
    """Return the newest match of `filters`, also if it has only just ended; None without any."""
    page = database.report(partial(_search, database, scopes, filters, NEWEST, 1))
    return next(iter(page.requests), None)


def _search(
    database: Database,
    scopes: Sequence[LogScope],
    filters: LogFilter,
    before: bytes,
    limit: int,
    oldest: bytes = b"",
) -> LogPage:
    find = find_stored(database, scopes, filters, oldest)
    return collect_page(find, partial(read_requests, database), scopes, filters, before, limit)


def find_stored(database: Database, scopes: Sequence[LogScope], filters: LogFilter, oldest: bytes) -> FindIds:
    """Return a function that finds ids of requests that may match, in the database. Call it inside a read."""
    sources = [source for scope in scopes for source in _sources(scope, filters)]
    return partial(_candidates, database, sources, max(oldest, oldest_id(filters)))


def oldest_id(filters: LogFilter) -> bytes:
    """Return the id before which no request matches."""
    if filters.from_us is None:
        return b""
    return first_id(filters.from_us)


def collect_page(
    find: FindIds,
    read: ReadRequests,
    scopes: Sequence[LogScope],
    filters: LogFilter,
    before: bytes,
    limit: int,
) -> LogPage:
    """Return the newest matches among the requests of `find`, which `read` reads, after a bounded number of rounds."""
    if filters.to_us is not None:
        before = min(before, first_id(filters.to_us))
    matches: list[LoggedRequest] = []
    for _ in range(ROUNDS):
        requests, bound = find(before, limit + 1)
        matches += [record for record in read(requests) if is_seen(record, scopes) and is_met(record, filters)]
        if len(matches) > limit:
            return LogPage(matches[:limit], matches[limit - 1].request)
        if bound is None:
            return LogPage(matches, None)
        before = bound
    return LogPage(matches, before)


def _candidates(
    database: Database, sources: Sequence[_Source], oldest: bytes, before: bytes, limit: int
) -> tuple[list[bytes], bytes | None]:
    """Return requests older than `before`, newest first, and the id down to which all sources were read completely
    (None: to their end)."""
    requests: set[bytes] = set()
    bounds = []
    for source in sources:
        met, bound = _look(database, source, oldest, before, limit)
        requests.update(met)
        if bound is not None:
            bounds.append(bound)
    newest = max(bounds, default=None)
    return sorted((ident for ident in requests if newest is None or ident >= newest), reverse=True), newest


def _look(
    database: Database, source: _Source, oldest: bytes, before: bytes, limit: int
) -> tuple[list[bytes], bytes | None]:
    """Return the matches of a source, and how far back it was read; None: to its end."""
    used = used_within(database, source.keys, oldest, before) if source.keys else None
    if used is None:
        return _scan(database, source, oldest, before, limit, DEPTH)
    met: list[bytes] = []
    left = DEPTH
    for low, high in used.ranges:
        count = _count(database, source, low, high, left + 1)
        if count > left:
            rest, bound = _scan(database, source, low, high, limit - len(met), left)
            return [*met, *rest], bound
        if count:
            met += _select(database, source, low, high, limit - len(met))
        if len(met) == limit:
            return met, met[-1]
        left -= count
    return met, None if used.whole or not used.ranges else used.ranges[-1][0]


def _scan(
    database: Database, source: _Source, oldest: bytes, before: bytes, limit: int, depth: int
) -> tuple[list[bytes], bytes | None]:
    """Do the same as `_look` for one range, and for at most `depth` rows of it."""
    floor = _floor(database, source, oldest, before, depth) if source.more else None
    met = _select(database, source, floor or oldest, before, limit)
    return met, met[-1] if len(met) == limit else floor


def _floor(database: Database, source: _Source, oldest: bytes, before: bytes, depth: int) -> bytes | None:
    """Return the last row to check; None when there are fewer. The index alone answers this."""
    clauses, params = _base(source, oldest, before)
    sql = f"SELECT request FROM {source.table} WHERE {clauses} ORDER BY request DESC LIMIT 1 OFFSET ?"
    row = database.execute(sql, (*params, depth)).fetchone()
    if row is None:
        return None
    return bytes(row[0])


def _count(database: Database, source: _Source, oldest: bytes, before: bytes, maximum: int) -> int:
    """Return the number of rows of a range, but at most `maximum`."""
    clauses, params = _base(source, oldest, before)
    sql = f"SELECT COUNT(*) FROM (SELECT 1 FROM {source.table} WHERE {clauses} LIMIT ?) ranged"
    return int(database.execute(sql, (*params, maximum)).fetchone()[0])


def _select(database: Database, source: _Source, oldest: bytes, before: bytes, limit: int) -> list[bytes]:
    clauses, params = _base(source, oldest, before)
    for clause, values in source.more:
        clauses += f" AND {clause}"
        params += values
    sql = f"SELECT request FROM {source.table} WHERE {clauses} GROUP BY request ORDER BY request DESC LIMIT ?"
    return [bytes(row[0]) for row in database.execute(sql, (*params, limit)).fetchall()]


def _base(source: _Source, oldest: bytes, before: bytes) -> tuple[str, list[Any]]:
    clauses = "".join(f"{column} = ? AND " for column, _ in source.base)
    return f"{clauses}request >= ? AND request < ?", [*(value for _, value in source.base), oldest, before]


def _sources(scope: LogScope, filters: LogFilter) -> list[_Source]:
    """Return the sources to search for a scope."""
    project = ("project", raw_id(scope.project_id))
    own = _owned(scope)
    if filters.tags:  # only the first tag is indexed here; other tags and the owner are checked afterwards
        return [_Source("log_tag", (project, ("tag", tag_of(*filters.tags[0]))))]
    if filters.retained:
        return [_Source("request_log", (project,), own)]
    if filters.session:
        base = (project, ("session", filters.session))
        return [_Source("usage", base, (*own, *_more("usage", filters, "", False)))]
    tables = _tables(filters)
    both = len(tables) == 2
    driver = "error" if filters.error and both else ""
    if filters.label:
        driver = "label"
    if driver:
        base = (project, (driver, filters.label or filters.error))
        return [_Source(table, base, (*own, *_more(table, filters, driver, both))) for table in tables]
    keys = tuple(map(raw_id, scope.key_ids))
    sources = []
    for table in tables:
        more = _more(table, filters, driver, both)
        if keys and table == "log_entry":
            sources += [_Source(table, (("api_key", key),), tuple(more)) for key in keys]
        else:
            sources.append(_Source(table, (project,), (*own, *more), keys))
    return sources


def _tables(filters: LogFilter) -> tuple[str, ...]:
    """Return the tables that can contain matches: usage rows, log entries, or both."""
    if filters.min_ms or filters.min_nusd or filters.no_error or filters.no_session:
        return ("usage",)
    if filters.status in range(400, 500) and filters.status != Cancelled.status:
        return ("log_entry",)
    if filters.provider or filters.status in range(1, 400):
        return ("usage",)
    return ("usage", "log_entry")


def owner_conditions(scope: LogScope) -> tuple[str, tuple[Any, ...]]:
    """Return the conditions of a scope within its project as SQL that follows others, and their parameters."""
    owned = _owned(scope)
    return "".join(f" AND {clause}" for clause, _ in owned), tuple(value for _, values in owned for value in values)


def _owned(scope: LogScope) -> tuple[Condition, ...]:
    own: tuple[Condition, ...] = (("member = ?", (raw_id(scope.member_id),)),) if scope.member_id else ()
    if not scope.key_ids:
        return own
    marks = ", ".join("?" * len(scope.key_ids))
    return (*own, (f"api_key IN ({marks})", tuple(map(raw_id, scope.key_ids))))


def _more(table: str, filters: LogFilter, driver: str, both: bool) -> list[Condition]:
    """Return further conditions that a row of `table` alone can decide. With `both` tables, the model is in either.
    Different attempts may match different conditions, so only one attempt condition is used: `driver`, by which the
    rows are found, or the first of the others."""
    equal = {"source": filters.source, "operation": filters.operation or None}
    more: list[Condition] = [(f"{column} = ?", (value,)) for column, value in equal.items() if value is not None]
    model = "" if driver == "error" else filters.model
    if table == "log_entry":
        return more + _more_of_entries(filters, model if both else "")
    more += [("session IS NULL", ())] if filters.no_session else []
    failed = filters.status >= 400 or filters.failed
    if failed:
        more.append(("error IS NOT NULL", ()))
    elif filters.min_nusd and not driver:
        return [*more, ("cost_nusd >= ?", (filters.min_nusd,))]
    elif filters.min_ms and not driver:
        return [*more, ("duration_ms >= ?", (filters.min_ms,))]
    if filters.provider and driver != "error":
        more.append(("provider = ?", (filters.provider,)))
    elif model:
        provider, _, name = model.partition("/")
        more.append(("(asked = ? OR served = ? OR provider = ? AND served = ?)", (model, model, provider, name)))
    elif filters.no_error and not driver and not failed:
        more.append(("error IS NULL", ()))
    return more


def _more_of_entries(filters: LogFilter, model: str) -> list[Condition]:
    more: list[Condition] = [("asked = ?", (model,))] if model else []
    if filters.status:
        more.append(("status = ?", (filters.status,)))
    if filters.failed:
        more.append(("status >= 400", ()))
    return more


def is_seen(record: LoggedRequest, scopes: Sequence[LogScope]) -> bool:
    """Return whether a request is within the scopes, independently of the index that found it."""
    owner = record.owner
    return any(
        owner.project == raw_id(scope.project_id)
        and (not scope.member_id or owner.member == raw_id(scope.member_id))
        and (not scope.key_ids or owner.api_key in map(raw_id, scope.key_ids))
        for scope in scopes
    )


def is_met(record: LoggedRequest, filters: LogFilter) -> bool:
    """Return whether a request matches the filter as a whole."""
    attempts = record.attempts
    models = {record.asked, *(a.served for a in attempts), *(f"{a.provider}/{a.served}" for a in attempts)}
    return (
        (not filters.model or filters.model in models)
        and (not filters.provider or any(attempt.provider == filters.provider for attempt in attempts))
        and (not filters.operation or record.operation == filters.operation)
        and (not filters.status or record.status == filters.status)
        and (not filters.error or filters.error in record.codes)
        and (not filters.failed or record.status >= 400)
        and (not filters.min_ms or any(attempt.duration_ms >= filters.min_ms for attempt in attempts))
        and (not filters.min_nusd or any(attempt.cost_nusd >= filters.min_nusd for attempt in attempts))
        and (filters.source is None or record.source == filters.source)
        and (not filters.label or record.label == filters.label)
        and (not filters.tags or set(filters.tags) <= set(record.tags.items()))
        and (not filters.retained or record.payload is not None)
        and (not filters.session or record.session == filters.session)
        and (not filters.no_session or (bool(attempts) and not record.session))
        and (not filters.no_error or any(not attempt.error for attempt in attempts))
        and (filters.from_us is None or record.request >= first_id(filters.from_us))
    )
