"""Searching the request log: newest first, a page at a time, and no page reads more than a bounded number of rows.

Usage rows and log entries are two sources in one order, that of request ids. Each source is asked through an index that
holds its rows in that order; what no index decides is looked for among the next `DEPTH` rows of it, so that a page may
be short, or empty, although an older one is not: its `following` says where to go on.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from gateway.errors import Cancelled
from gateway.metering.log.hours import used_within
from gateway.metering.log.log_entries import first_id, tag_of
from gateway.metering.log.records import LoggedRequest, read_requests
from gateway.metering.usage_table import raw_id
from gateway.store.database import Database

# Rows of a source that one round looks at for what no index decides, and rounds of a page.
DEPTH = 5_000
ROUNDS = 3
NEWEST = b"\xff" * 16


class LogScope(NamedTuple):
    """What may be seen of a project: everything, or only what `member_id`'s keys or the keys `key_ids` did there. A
    member's keys are not named where they are too many to be asked one by one."""

    project_id: str
    member_id: str = ""
    key_ids: tuple[str, ...] = ()


class LogFilter(NamedTuple):
    """Which requests; "" and None: all. `model` as asked, as served, or provider/model; `provider`, `model` and `error`
    are met when any attempt meets them. `tags` are all there. Requests came in within [from_us, to_us), to the
    millisecond. `retained`: only those whose payload is kept."""

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


class LogPage(NamedTuple):
    """`following`: older requests than this one come next; None at the end."""

    found: list[LoggedRequest]
    following: bytes | None


Condition = tuple[str, tuple[Any, ...]]


class _Source(NamedTuple):
    """One table's rows in the order of requests: `base` is decided by an index, `more` is not. `keys`: only rows of
    these keys are asked for, of which the rollups tell when they were used."""

    table: str
    base: tuple[tuple[str, Any], ...]
    more: tuple[Condition, ...] = ()
    keys: tuple[bytes, ...] = ()


def search(
    database: Database, scopes: Sequence[LogScope], wanted: LogFilter, before: bytes | None, limit: int
) -> LogPage:
    """The newest `limit` requests that are `wanted` and older than `before`."""
    return database.report(lambda: _search(database, scopes, wanted, before or NEWEST, limit))


def _search(database: Database, scopes: Sequence[LogScope], wanted: LogFilter, before: bytes, limit: int) -> LogPage:
    sources = [source for scope in scopes for source in _sources(scope, wanted)]
    if wanted.from_us is None:
        oldest = b""
    else:
        oldest = first_id(wanted.from_us)
    if wanted.to_us is not None:
        before = min(before, first_id(wanted.to_us))
    found: list[LoggedRequest] = []
    for _ in range(ROUNDS):
        requests, bound = _candidates(database, sources, oldest, before, limit + 1)
        found += [one for one in read_requests(database, requests) if is_seen(one, scopes) and is_met(one, wanted)]
        if len(found) > limit:
            return LogPage(found[:limit], found[limit - 1].request)
        if bound is None:
            return LogPage(found, None)
        before = bound
    return LogPage(found, before)


def _candidates(
    database: Database, sources: Sequence[_Source], oldest: bytes, before: bytes, limit: int
) -> tuple[list[bytes], bytes | None]:
    """Requests older than `before`, newest first, and how far back the sources were looked at: nothing between is left
    out. None: to their end."""
    requests: set[bytes] = set()
    bounds = []
    for source in sources:
        met, bound = _look(database, source, oldest, before, limit)
        requests.update(met)
        if bound is not None:
            bounds.append(bound)
    newest = max(bounds, default=None)
    return sorted((one for one in requests if newest is None or one >= newest), reverse=True), newest


def _look(
    database: Database, source: _Source, oldest: bytes, before: bytes, limit: int
) -> tuple[list[bytes], bytes | None]:
    """What a source has, and how far back it was looked at; None: to its end."""
    if source.keys:
        used = used_within(database, source.keys, oldest, before)
    else:
        used = None
    if used is None:
        return _scan(database, source, oldest, before, limit, DEPTH)
    met: list[bytes] = []
    left = DEPTH
    for low, high in used.ranges:
        count = _count(database, source, low, high, left + 1)
        if count > left:
            found, bound = _scan(database, source, low, high, limit - len(met), left)
            return [*met, *found], bound
        met += _ask(database, source, low, high, limit - len(met)) if count else []
        if len(met) == limit:
            return met, met[-1]
        left -= count
    return met, None if used.whole or not used.ranges else used.ranges[-1][0]


def _scan(
    database: Database, source: _Source, oldest: bytes, before: bytes, limit: int, depth: int
) -> tuple[list[bytes], bytes | None]:
    """As `_look`, of one range, and of no more than `depth` rows of it."""
    if source.more:
        floor = _floor(database, source, oldest, before, depth)
    else:
        floor = None
    met = _ask(database, source, floor or oldest, before, limit)
    return met, met[-1] if len(met) == limit else floor


def _floor(database: Database, source: _Source, oldest: bytes, before: bytes, depth: int) -> bytes | None:
    """The last row to look at; None when there are fewer. It is found in the index alone."""
    clauses, params = _base(source, oldest, before)
    sql = f"SELECT request FROM {source.table} WHERE {clauses} ORDER BY request DESC LIMIT 1 OFFSET ?"
    row = database.execute(sql, (*params, depth)).fetchone()
    if row is None:
        return None
    return bytes(row[0])


def _count(database: Database, source: _Source, oldest: bytes, before: bytes, most: int) -> int:
    """How many rows a range has, `most` at most."""
    clauses, params = _base(source, oldest, before)
    sql = f"SELECT COUNT(*) FROM (SELECT 1 FROM {source.table} WHERE {clauses} LIMIT ?) ranged"
    return int(database.execute(sql, (*params, most)).fetchone()[0])


def _ask(database: Database, source: _Source, oldest: bytes, before: bytes, limit: int) -> list[bytes]:
    clauses, params = _base(source, oldest, before)
    for clause, values in source.more:
        clauses += f" AND {clause}"
        params += values
    sql = f"SELECT request FROM {source.table} WHERE {clauses} GROUP BY request ORDER BY request DESC LIMIT ?"
    return [bytes(row[0]) for row in database.execute(sql, (*params, limit)).fetchall()]


def _base(source: _Source, oldest: bytes, before: bytes) -> tuple[str, list[Any]]:
    clauses = "".join(f"{column} = ? AND " for column, _ in source.base)
    return f"{clauses}request >= ? AND request < ?", [*(value for _, value in source.base), oldest, before]


def _sources(scope: LogScope, wanted: LogFilter) -> list[_Source]:
    """Where to look for what a scope may show."""
    project = ("project", raw_id(scope.project_id))
    own = _owned(scope)
    if wanted.tags:  # the first of them; the others, and whose they are, is looked at afterwards
        return [_Source("log_tag", (project, ("tag", tag_of(*wanted.tags[0]))))]
    if wanted.retained:
        return [_Source("request_log", (project,), own)]
    tables = _tables(wanted)
    both = len(tables) == 2
    if wanted.label:
        driver = "label"
    else:
        driver = "error" if wanted.error and both else ""
    if driver:
        base = (project, (driver, wanted.label or wanted.error))
        return [_Source(table, base, (*own, *_more(table, wanted, driver, both))) for table in tables]
    keys = tuple(map(raw_id, scope.key_ids))
    found = []
    for table in tables:
        more = _more(table, wanted, driver, both)
        if keys and table == "log_entry":
            found += [_Source(table, (("api_key", key),), tuple(more)) for key in keys]
        else:
            found.append(_Source(table, (project,), (*own, *more), keys))
    return found


def _tables(wanted: LogFilter) -> tuple[str, ...]:
    """Usage rows alone for what only they tell, log entries alone for what only these tell, else both."""
    if wanted.status in range(400, 500) and wanted.status != Cancelled.status:
        return ("log_entry",)
    if wanted.provider or wanted.status in range(1, 400):
        return ("usage",)
    return ("usage", "log_entry")


def _owned(scope: LogScope) -> tuple[Condition, ...]:
    own: tuple[Condition, ...] = (("member = ?", (raw_id(scope.member_id),)),) if scope.member_id else ()
    if not scope.key_ids:
        return own
    marks = ", ".join("?" * len(scope.key_ids))
    return (*own, (f"api_key IN ({marks})", tuple(map(raw_id, scope.key_ids))))


def _more(table: str, wanted: LogFilter, driver: str, both: bool) -> list[Condition]:
    """What else a row of `table` must meet, as far as it alone tells: `both` tables may tell of the model, and of what
    different attempts may meet one thing only, by which the rows are found (`driver`) or which they are asked for."""
    more: list[Condition] = [] if wanted.source is None else [("source = ?", (wanted.source,))]
    if driver == "error":
        model = ""
    else:
        model = wanted.model
    if table == "log_entry":
        if model and both:
            more.append(("asked = ?", (model,)))
        if wanted.status:
            more.append(("status = ?", (wanted.status,)))
        return more
    if wanted.status >= 400:
        more.append(("error IS NOT NULL", ()))
    if wanted.provider and driver != "error":
        more.append(("provider = ?", (wanted.provider,)))
    elif model:
        provider, _, name = model.partition("/")
        more.append(("(asked = ? OR served = ? OR provider = ? AND served = ?)", (model, model, provider, name)))
    return more


def is_seen(one: LoggedRequest, scopes: Sequence[LogScope]) -> bool:
    """Whether a request lies within what may be seen, whatever the indices brought."""
    owner = one.owner
    return any(
        owner.project == raw_id(scope.project_id)
        and (not scope.member_id or owner.member == raw_id(scope.member_id))
        and (not scope.key_ids or owner.api_key in map(raw_id, scope.key_ids))
        for scope in scopes
    )


def is_met(one: LoggedRequest, wanted: LogFilter) -> bool:
    """Whether a request is wanted, all of it considered."""
    models = {one.asked, *(a.served for a in one.attempts), *(f"{a.provider}/{a.served}" for a in one.attempts)}
    return (
        (not wanted.model or wanted.model in models)
        and (not wanted.provider or any(a.provider == wanted.provider for a in one.attempts))
        and (not wanted.status or one.status == wanted.status)
        and (not wanted.error or wanted.error in one.codes)
        and (wanted.source is None or one.source == wanted.source)
        and (not wanted.label or one.label == wanted.label)
        and (not wanted.tags or set(wanted.tags) <= set(one.tags.items()))
        and (not wanted.retained or one.payload is not None)
        and (wanted.from_us is None or one.request >= first_id(wanted.from_us))
    )
