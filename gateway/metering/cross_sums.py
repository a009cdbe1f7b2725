"""Sums by names of which the statistics keep no pairs, such as model and error code, from the usage rows themselves.

The rows that the statistics count are summed, and in the same way, so that both agree to the nano-dollar. They exist
for a time only, and reading them takes longer than reading sums, so that a question may cover so many of them.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct

from gateway.clock import HOUR_US, to_datetime
from gateway.errors import InvalidRequest
from gateway.metering.activity import HeldValues, Owners, Span, measure, value_at
from gateway.metering.figures import ActivityFigures, last_params, rows_sql, sums_sql
from gateway.metering.rollups.queries import Row, bucket_sql, rows_begin_us
from gateway.metering.rollups.rollup_table import (
    ERROR,
    HOURS,
    OPERATION,
    OTHER,
    SESSION,
    USUAL_OPERATION,
    fetch_exact,
    read_state,
)
from gateway.metering.rollups.row_sums import MAX_NAME_LENGTH, START_MARGIN_US
from gateway.metering.usage_table import raw_id
from gateway.store.database import Database
from gateway.store.partitions import id_at

MAX_ROWS = 1_000_000  # requests of one question
MAX_GROUPS = 200_000  # sums of one question: each takes half a kilobyte and 20 µs
MAX_CHANGES = 20  # hours of a period in which attributes change, by which SQL divides it
MAX_OWNERS = 10_000
HOUR_SQL = f"(u.at / {HOUR_US})"
TAG_VALUE = {"sqlite": "json_extract(u.tags, ?)", "postgresql": "(CAST(u.tags AS json) ->> CAST(? AS text))"}
# The path of SQLite's json_extract has no escape for a quote.
QUOTED_VALUE = "(SELECT j.value FROM json_each(u.tags) j WHERE j.key = ? LIMIT 1)"
COLUMNS = {SESSION: "COALESCE(u.session, '')", ERROR: "COALESCE(u.error, '')"}

Kind = Literal["key", "model", "source", "tag", "held"]


class CrossSlot(Struct, frozen=True):
    """A part of the values of a row: its key, model and provider (two values), source, value of a tag, or the value of
    an attribute of the key's owner at that hour. `tag` is the name of the tag, or of the attribute."""

    kind: Kind
    tag: str = ""

    @property
    def width(self) -> int:
        """Return the number of values."""
        return 2 if self.kind == "model" else 1


class CrossUnavailable(InvalidRequest):
    """The rows that a question needs are not stored any more, or are too many."""


class CrossQuestion(Struct, frozen=True):
    """What is summed: all combinations of the values of `slots`. `names` are the values of each tag that have names of
    their own; all others are OTHER. `projects` are those of the keys of the owners. `held` are the values of
    each attribute by key."""

    slots: tuple[CrossSlot, ...]
    names: Mapping[str, Sequence[str]]
    projects: tuple[str, ...]
    held: Mapping[str, HeldValues] = MappingProxyType({})


def check_available(database: Database, owners: Owners, span: Span) -> None:
    """Raise CrossUnavailable with the reason if the rows of a span cannot be summed. Inside `queries.at_once`."""
    begin_us = rows_begin_us(database) + START_MARGIN_US
    if span.start_us < begin_us and begin_us > START_MARGIN_US:
        first = to_datetime(begin_us - 1 + HOURS * HOUR_US).date().isoformat()
        raise CrossUnavailable(
            "Statistics keep no sums of this combination, and the requests themselves are stored since "
            f"{first} only. Choose a period from that day on, or one group less."
        )
    rows = measure(database, owners, Span(span.first, span.end, "all"), "total", ("requests",))
    count = sum(row.figures.requests for row in rows)
    if count > MAX_ROWS:
        raise CrossUnavailable(
            f"Statistics keep no sums of this combination, so that it is computed from single requests: at most "
            f"{MAX_ROWS:,}, and this period has {count:,}. Choose a shorter period, a project or an API key."
        )


def measure_crossed(
    database: Database, owners: Owners, span: Span, question: CrossQuestion, figures: tuple[str, ...]
) -> list[Row]:
    """Return rows by step and values of all slots. Raises CrossUnavailable. Inside a read of the store."""
    state = read_state(database)
    if state is None:
        return []
    check_available(database, owners, span)
    shown, params = _columns(database, question)
    parts = _divide(question, span)
    columns = (bucket_sql(span.step, None, HOUR_SQL), _part_sql(parts), *shown)
    sums: dict[tuple[int, tuple[Any, ...]], Row] = {}
    for condition, owned in _conditions(owners, question.projects):
        where = f"{condition} AND w.request >= ? AND w.request < ? AND w.at >= ? AND w.at < ? AND w.posted_at < ?"
        bounds = (id_at(span.start_us - START_MARGIN_US), id_at(span.end_us), span.start_us, span.end_us)
        places = ", ".join(str(place + 1) for place in range(len(columns)))
        sql = (
            f"SELECT {', '.join(columns)}, {sums_sql(database, figures)} FROM {rows_sql(where)} "
            f"GROUP BY {places} LIMIT {MAX_GROUPS + 1}"
        )
        last = last_params(state.watermark, bytes.fromhex(state.purged))
        values = (*params, *last, *owned, *bounds, state.watermark)
        lines = fetch_exact(database, sql, values)
        if len(lines) > MAX_GROUPS:
            raise CrossUnavailable(
                f"This combination has more than {MAX_GROUPS:,} sums. Choose a shorter period, a project or an API key."
            )
        for line in lines:
            row = _read(line, question, figures, parts)
            known = sums.setdefault((row.step, row.value), row)
            if known is not row:
                known.add(row)
    return list(sums.values())


def _columns(database: Database, question: CrossQuestion) -> tuple[list[str], list[Any]]:
    """Return the SQL of the values, and its parameters."""
    shown: list[str] = []
    params: list[Any] = []
    for slot in question.slots:
        if slot.kind in ("key", "held"):
            shown.append("u.api_key")
        elif slot.kind == "model":
            shown += ["u.served", "u.provider"]
        elif slot.kind == "source":
            shown.append("u.source")
        else:
            sql, more = _tag_sql(database, slot.tag, tuple(question.names.get(slot.tag, ())))
            shown.append(sql)
            params += more
    return shown, params


def _tag_sql(database: Database, tag: str, names: tuple[str, ...]) -> tuple[str, list[Any]]:
    """Return the SQL of the value of a tag as the statistics have it, "" without one, and OTHER for one that is not
    among `names`."""
    if tag == OPERATION:
        return f"CASE WHEN u.operation = '{USUAL_OPERATION}' THEN '' ELSE COALESCE(u.operation, '') END", []
    value, params = COLUMNS.get(tag, ""), list[Any]()
    if tag == ERROR:
        return value, params
    if not value:
        read = TAG_VALUE[database.kind]
        params = [tag]
        if database.kind == "sqlite":
            read, params = (QUOTED_VALUE, [tag]) if '"' in tag else (read, [f'$."{tag}"'])
        value = f"COALESCE(substr(CAST({read} AS TEXT), 1, {MAX_NAME_LENGTH}), '')"
    known = ", ".join("?" * (len(names) + 1))
    return f"CASE WHEN {value} IN ({known}) THEN {value} ELSE '{OTHER}' END", [*params, "", *names, *params]


def _conditions(owners: Owners, projects: Sequence[str]) -> list[tuple[str, list[bytes]]]:
    """Return the conditions on the rows of whole projects, and on those of keys."""
    found = []
    if owners.project_ids:
        idents = [raw_id(ident) for ident in owners.project_ids]
        found.append((f"w.project IN ({', '.join('?' * len(idents))})", idents))
    within = [raw_id(ident) for ident in projects]
    for start in range(0, len(owners.key_ids), MAX_OWNERS):
        idents = [raw_id(ident) for ident in owners.key_ids[start : start + MAX_OWNERS]]
        marks = ", ".join("?" * len(within)), ", ".join("?" * len(idents))
        found.append((f"w.project IN ({marks[0]}) AND w.api_key IN ({marks[1]})", [*within, *idents]))
    return found


def _divide(question: CrossQuestion, span: Span) -> Sequence[int]:
    """Return the first hours of the parts of a span within which no attribute changes; none: each hour is a part."""
    held = [values for of_keys in question.held.values() for values in of_keys.values()]
    changes = {hour for values in held for one in values for hour in (one.first, one.end)}
    inner = sorted(hour for hour in changes if span.first < hour < span.end)
    return (span.first, *inner) if len(inner) <= MAX_CHANGES else ()


def _part_sql(parts: Sequence[int]) -> str:
    """Return the SQL of the number of the part in which an hour lies, or of the hour where each is one."""
    if not parts:
        return HOUR_SQL
    return " + ".join(("0", *(f"CASE WHEN {HOUR_SQL} >= {first} THEN 1 ELSE 0 END" for first in parts[1:])))


def _read(line: Sequence[Any], question: CrossQuestion, figures: tuple[str, ...], parts: Sequence[int]) -> Row:
    place, values = 2, list[Any]()
    step, hour = int(line[0]), parts[line[1]] if parts else int(line[1])
    for slot in question.slots:
        part = line[place : place + slot.width]
        place += slot.width
        if slot.kind in ("key", "held"):
            part = (bytes(part[0]),)
        if slot.kind == "held":
            held = question.held[slot.tag]
            part = (value_at(held.get(f"key_{part[0].hex()}", ()), hour),)
        values += part
    sums = ActivityFigures()
    vars(sums).update({name: int(value) for name, value in zip(figures, line[place:], strict=True) if value})
    return Row(step, tuple(values), sums)
