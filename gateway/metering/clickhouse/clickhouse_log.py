"""The request log, sessions and latencies of removed usage rows, from the table of usage in ClickHouse."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gateway.clock import DAY_US
from gateway.errors import Cancelled
from gateway.metering.clickhouse.clickhouse_http import ClickHouse
from gateway.metering.clickhouse.clickhouse_reports import ClickHouseAnswers
from gateway.metering.clickhouse.sink import COUNTS, ID_COLUMNS, NUMBERS, TIMES
from gateway.metering.log.agent_sessions import FIGURES, SessionName, SessionPart, part_of_row
from gateway.metering.log.search import LogFilter, LogScope
from gateway.metering.models import CACHED, SETTLEMENT
from gateway.metering.usage_table import UsageRecord, raw_id
from gateway.store.partitions import id_at, time_of

# The fields of archived rows: decisions are kept for days only, and not archived.
FIELDS = [name for name in UsageRecord._fields if name != "decision"]
# A column of ClickHouse for each field.
COLUMNS = [{"at": "at_us", "posted_at": "posted_us"}.get(name, name) for name in FIELDS]
OPTIONAL = frozenset(UsageRecord._field_defaults)
WHOLE_NUMBERS = frozenset((*COUNTS, *NUMBERS, *TIMES))
# The attempts of a request begin at most this long after it arrived.
MAX_REQUEST_US = 2 * DAY_US
# A request arrived up to this long after the time in its id, which counts milliseconds.
PRECISION_US = 1_000


class ClickHouseLog:
    """The archive of the request log. It is used while reports are read from ClickHouse."""

    def __init__(self, client: ClickHouse, table: str, answers: ClickHouseAnswers) -> None:
        self._client = client
        self._table = table
        self.is_usable = answers.is_usable
        self.leave = answers.leave
        self.begin_us = answers.begin_us

    def find_ids(
        self, scopes: Sequence[LogScope], filters: LogFilter, oldest: bytes, before: bytes, limit: int
    ) -> list[bytes]:
        """Return ids in [oldest, before) of requests that may match, newest first. Unavailable."""
        if not scopes:
            return []
        owned = " OR ".join(map(_scope_sql, scopes))
        conditions, params = _conditions(filters)
        having = " AND ".join(f"countIf({condition}) > 0" for condition in conditions) or "1"
        rows = self._client.query(
            f"SELECT request FROM {self._table} FINAL WHERE ({owned}) AND request >= '{oldest.hex()}' "
            f"AND request < '{before.hex()}' AND {_time_sql(oldest, before)} "
            f"GROUP BY request HAVING {having} ORDER BY request DESC LIMIT {limit}",
            **params,
        )
        return [bytes.fromhex(row[0]) for row in rows]

    def read_attempts(self, requests: Sequence[bytes]) -> dict[bytes, list[UsageRecord]]:
        """Return the attempts of requests, in order. Unavailable."""
        rows = self._client.query(
            f"SELECT {', '.join(COLUMNS)} FROM {self._table} FINAL WHERE request IN ({_list_ids(requests)}) "
            f"AND {_time_sql(min(requests), max(requests))} ORDER BY request, attempt, kind"
        )
        attempts: dict[bytes, list[UsageRecord]] = {}
        for row in rows:
            record = UsageRecord(**dict(zip(FIELDS, map(_read_value, FIELDS, row), strict=True)))
            attempts.setdefault(record.request, []).append(record)
        return attempts

    def find_sessions(self, scopes: Sequence[LogScope], before: bytes, limit: int) -> list[tuple[bytes, SessionName]]:
        """Return the sessions with their newest request before an id, newest first, each with that request.
        Unavailable."""
        if not scopes:
            return []
        rows = self._client.query(
            f"SELECT max(request) AS newest, project, session FROM {self._table} FINAL "
            f"WHERE ({' OR '.join(map(_scope_sql, scopes))}) AND session != '' "
            f"GROUP BY project, session HAVING newest < '{before.hex()}' ORDER BY newest DESC LIMIT {limit}"
        )
        return [(bytes.fromhex(newest), SessionName(f"proj_{project}", session)) for newest, project, session in rows]

    def sum_sessions(
        self, scopes: Sequence[LogScope], sessions: Sequence[SessionName], before: bytes
    ) -> list[SessionPart]:
        """Return the parts of sessions, of their requests before an id. Unavailable."""
        if not scopes or not sessions:
            return []
        params = {f"session_{number}": name.session for number, name in enumerate(sessions)}
        wanted = ", ".join(
            f"('{raw_id(name.project_id).hex()}', {{session_{number}:String}})" for number, name in enumerate(sessions)
        )
        sums = ", ".join(f"sum(toInt128({figure}))" for figure in FIGURES)
        rows = self._client.query(
            "SELECT project, session, provider, served, api_key, source, countIf(attempt = 0 AND kind = 0), "
            f"countIf(error != ''), min(at_us), max(at_us + duration_ms * 1000), max(request), {sums} "
            f"FROM {self._table} FINAL WHERE ({' OR '.join(map(_scope_sql, scopes))}) "
            f"AND (project, session) IN ({wanted}) AND request < '{before.hex()}' AND {_time_sql(b'', before)} "
            "GROUP BY project, session, provider, served, api_key, source",
            **params,
        )
        return [_read_part(row) for row in rows]

    def read_latency(
        self, owned: Mapping[str, Sequence[bytes]], provider: str, start_us: int, end_us: int, step_us: int
    ) -> list[list[Any]]:
        """Return the steps of RequestArchive.read_latency. Unavailable."""
        owner = " OR ".join(f"{column} IN ({_list_ids(ids)})" for column, ids in owned.items())
        return self._client.query(
            f"SELECT intDiv(at_us, {step_us}) AS step, countIf(error = ''), countIf(error != ''), "
            "avgOrNullIf(ttft_ms, error = '' AND ttft_ms > 0), avgOrNullIf(duration_ms, error = '') "
            f"FROM {self._table} FINAL WHERE ({owner}) AND at_us >= {start_us} AND at_us < {end_us} "
            f"AND request >= '{id_at(start_us).hex()}' AND request < '{id_at(end_us).hex()}' "
            f"AND provider = {{provider:String}} AND kind = {SETTLEMENT} AND bitAnd(flags, {CACHED}) = 0 "
            "GROUP BY step ORDER BY step",
            provider=provider,
        )


def _read_part(row: Sequence[Any]) -> SessionPart:
    project, session, provider, served, key, source, turns, failures, first_us, last_us, newest, *sums = row
    ids = bytes.fromhex(key), bytes.fromhex(newest)
    columns = (session, provider, served, ids[0], source, turns, failures, first_us, last_us, ids[1], *sums)
    return part_of_row(f"proj_{project}", columns)


def _time_sql(oldest: bytes, newest: bytes) -> str:
    """Return a condition that leaves out parts of the table; ids alone leave out none."""
    earliest = time_of(oldest or bytes(16)) - PRECISION_US
    return f"at_us >= {earliest} AND at_us < {time_of(newest) + PRECISION_US + MAX_REQUEST_US}"


def _list_ids(ids: Iterable[bytes]) -> str:
    return ", ".join(f"'{ident.hex()}'" for ident in ids)


def _scope_sql(scope: LogScope) -> str:
    clauses = [f"project = '{raw_id(scope.project_id).hex()}'"]
    if scope.member_id:
        clauses.append(f"member = '{raw_id(scope.member_id).hex()}'")
    if scope.key_ids:
        clauses.append(f"api_key IN ({_list_ids(map(raw_id, scope.key_ids))})")
    return f"({' AND '.join(clauses)})"


def _conditions(filters: LogFilter) -> tuple[list[str], dict[str, str]]:
    """Return conditions, each of which some attempt of a match meets, and their parameters."""
    provider, _, name = filters.model.partition("/")
    wanted = {
        "model": (
            filters.model,
            "asked = {model:String} OR served = {model:String} "
            "OR (provider = {model_provider:String} AND served = {model_name:String})",
        ),
        "provider": (filters.provider, "provider = {provider:String}"),
        "label": (filters.label, "label = {label:String}"),
        "session": (filters.session, "session = {session:String}"),
        "operation": (filters.operation, "operation = {operation:String}"),
    }
    conditions = [sql for value, sql in wanted.values() if value]
    params = {key: value for key, (value, _) in wanted.items() if value}
    if filters.model:
        params |= {"model_provider": provider, "model_name": name}
    if filters.source is not None:
        conditions.append("source = {source:String}")
        params["source"] = filters.source
    if filters.failed or (filters.status >= 400 and filters.status != Cancelled.status):
        conditions.append("error != ''")
    conditions += ["error = ''"] if filters.no_error else []
    conditions += ["session = ''"] if filters.no_session else []
    conditions += [f"duration_ms >= {int(filters.min_ms)}"] if filters.min_ms else []
    conditions += [f"cost_nusd >= {int(filters.min_nusd)}"] if filters.min_nusd else []
    for number, (tag, value) in enumerate(filters.tags):
        conditions.append(f"JSONExtractString(tags, {{tag_{number}:String}}) = {{value_{number}:String}}")
        params |= {f"tag_{number}": tag, f"value_{number}": value}
    return conditions, params


def _read_value(field: str, value: Any) -> Any:
    """Return the value of a usage row's field; empty optional fields are None."""
    if field in ID_COLUMNS:
        return bytes.fromhex(value)
    if field in OPTIONAL and not value:
        return None
    if field in WHOLE_NUMBERS or field.endswith("_nusd"):
        return int(value)
    return value
