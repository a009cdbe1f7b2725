"""Activity: requests, tokens and costs by hour or day, computed from the usage rows and from nothing else.

A request counts once, by its last attempt; costs and tokens of every attempt count. An error is a request whose last
attempt failed; a request that was refused before any attempt left no row and is not counted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from gateway.metering.models import BYOK, CACHED, SETTLEMENT
from gateway.metering.usage_table import raw_id
from gateway.store.database import Database

Dimension = Literal["model", "api_key", "member", "source"]

COLUMNS: dict[Dimension, tuple[str, ...]] = {
    "model": ("u.served", "u.provider"),
    "api_key": ("u.api_key",),
    "member": ("u.member",),
    "source": ("u.source",),
}
# Refusals that were the caller's own doing.
CLIENT_CODES = ("client_error", "content_policy_violation", "request_cancelled", "client_disconnect")
INPUT_UNITS = ("input_audio", "input_audio_cached", "input_image")
OUTPUT_UNITS = ("output_audio", "output_image")
CACHED_UNITS = ("input_audio_cached",)
# Cost components without a column → the figure that they belong to.
PARTS = {
    "request": "request_nusd",
    "image_input": "image_input_nusd",
    "image_output": "image_output_nusd",
    "images": "image_output_nusd",
    "audio_input": "audio_input_nusd",
    "audio_cached_input": "audio_input_nusd",
    "audio_seconds": "audio_input_nusd",
    "audio_output": "audio_output_nusd",
    "video_output": "video_output_nusd",
}


@dataclass(slots=True)
class ActivityFigures:
    """Sums; `_nusd` are nano-dollars. `byok_` is the part of what the caller's own provider keys
    served. The fee for storage and what discounts saved are no part of the cost."""

    requests: int = 0
    errors: int = 0
    client_errors: int = 0
    cached_requests: int = 0
    byok_requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_nusd: int = 0
    byok_nusd: int = 0
    storage_nusd: int = 0
    byok_storage_nusd: int = 0
    input_nusd: int = 0
    output_nusd: int = 0
    cached_nusd: int = 0
    cache_write_nusd: int = 0
    request_nusd: int = 0
    image_input_nusd: int = 0
    image_output_nusd: int = 0
    audio_input_nusd: int = 0
    audio_output_nusd: int = 0
    video_output_nusd: int = 0
    discount_nusd: int = 0

    def add(self, other: "ActivityFigures") -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


# Each row with `last`: 1 for the last attempt of its request, else 0.
ROWS = (
    "SELECT w.*, CASE WHEN w.kind = {settlement} AND NOT EXISTS (SELECT 1 FROM usage v WHERE v.request = w.request "
    "AND v.attempt > w.attempt) THEN 1 ELSE 0 END AS last FROM usage w WHERE {condition}"
)
# What is summed for each figure that has columns.
SUMS: dict[str, str] = {
    "requests": "u.last",
    "errors": "CASE WHEN u.error IS NOT NULL THEN u.last ELSE 0 END",
    "client_errors": "CASE WHEN u.error IN ({codes}) THEN u.last ELSE 0 END",
    "cached_requests": "CASE WHEN (u.flags & {cached}) <> 0 THEN u.last ELSE 0 END",
    "byok_requests": "CASE WHEN u.mode = {byok} THEN u.last ELSE 0 END",
    "input_tokens": "CAST(u.input AS BIGINT) + u.cache_read + u.cache_write",
    "output_tokens": "u.output",
    "cached_tokens": "u.cache_read",
    "cache_write_tokens": "u.cache_write",
    "reasoning_tokens": "u.reasoning",
    "cost_nusd": "u.cost_nusd",
    "byok_nusd": "CASE WHEN u.mode = {byok} THEN u.cost_nusd ELSE 0 END",
    "storage_nusd": "COALESCE(u.storage_nusd, 0)",
    "byok_storage_nusd": "CASE WHEN u.mode = {byok} THEN COALESCE(u.storage_nusd, 0) ELSE 0 END",
    "input_nusd": "u.input_nusd",
    "output_nusd": "u.output_nusd",
    "cached_nusd": "u.cached_nusd",
    "cache_write_nusd": "u.cache_write_nusd",
    "discount_nusd": "COALESCE(u.discount_nusd, 0)",
}
CODES = ", ".join(f"'{code}'" for code in CLIENT_CODES)


@dataclass(frozen=True, slots=True)
class ActivityScope:
    """Projects of which everything counts, or, with `member_id`, only what that member's keys did."""

    project_ids: tuple[str, ...]
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """[start, end) in microseconds, cut into steps of `step_us`, which divides an hour or is a whole day in UTC."""

    start_us: int
    end_us: int
    step_us: int


@dataclass(slots=True)
class Row:
    """Figures of one step and one value of the dimension; ids as the 16 bytes behind their prefix."""

    step: int
    value: tuple[Any, ...]
    figures: ActivityFigures = field(default_factory=ActivityFigures)
    last_us: int = 0


def measure(
    database: Database, places: Sequence[ActivityScope], span: Span, dimension: Dimension, api_key_id: str = ""
) -> list[Row]:
    """Rows by step (number of steps since the epoch) and value of `dimension`, only those with anything in them."""
    condition, params = _condition(places, span, api_key_id)
    if not condition:
        return []
    return database.report(lambda: _read(database, condition, params, span.step_us, COLUMNS[dimension]))


def _read(database: Database, condition: str, params: list[Any], step_us: int, columns: tuple[str, ...]) -> list[Row]:
    keys = ", ".join((f"u.at / {step_us}", *columns))
    sums = ", ".join(f"SUM({sql.format(codes=CODES, cached=CACHED, byok=BYOK)})" for sql in SUMS.values())
    source = f"FROM ({ROWS.format(settlement=SETTLEMENT, condition=condition)}) u"
    width = len(columns)
    rows: dict[tuple[Any, ...], Row] = {}
    sql = database.exact_sums(f"SELECT {keys}, MAX(u.at), {sums} {source} GROUP BY {keys}")
    for found in database.execute(sql, params).fetchall():
        value = tuple(_plain(cell) for cell in found[1 : 1 + width])
        figures = ActivityFigures(**{name: int(cell) for name, cell in zip(SUMS, found[2 + width :], strict=True)})
        rows[int(found[0]), value] = Row(int(found[0]), value, figures, int(found[1 + width]))
    rare = f"SELECT {keys}, u.extra FROM usage u WHERE {condition.replace('w.', 'u.')} AND u.extra IS NOT NULL"
    _add_rare(rows, database.execute(rare, params).fetchall())
    return sorted(rows.values(), key=lambda row: row.step)


def _add_rare(rows: Mapping[tuple[Any, ...], Row], found: Iterable[Sequence[Any]]) -> None:
    """Counts and components that few rows have, kept as JSON beside the columns."""
    for line in found:
        value = tuple(_plain(cell) for cell in line[1:-1])
        row = rows.get((int(line[0]), value))
        if row is None:
            continue  # recorded between the two reads; the next report has it
        extra = orjson.loads(line[-1])
        units, figures = extra.get("units", {}), row.figures
        figures.input_tokens += sum(units.get(name, 0) for name in INPUT_UNITS)
        figures.output_tokens += sum(units.get(name, 0) for name in OUTPUT_UNITS)
        figures.cached_tokens += sum(units.get(name, 0) for name in CACHED_UNITS)
        for part, nusd in extra.get("nusd", {}).items():
            name = PARTS.get(part)
            if name:
                setattr(figures, name, getattr(figures, name) + nusd)


def _condition(places: Sequence[ActivityScope], span: Span, api_key_id: str) -> tuple[str, list[Any]]:
    """The WHERE clause and its parameters; "" when no place is left."""
    clauses: list[str] = []
    params: list[Any] = [span.start_us, span.start_us, span.end_us]
    for place in places:
        if not place.project_ids:
            continue
        clause = f"w.project IN ({', '.join('?' * len(place.project_ids))})"
        params += [raw_id(project_id) for project_id in place.project_ids]
        if place.member_id:
            clause += " AND w.member = ?"
            params.append(raw_id(place.member_id))
        clauses.append(f"({clause})")
    if not clauses:
        return "", []
    # A row is recorded after its attempt began, so the index on `posted_at` finds all that can matter.
    condition = f"w.posted_at >= ? AND w.at >= ? AND w.at < ? AND ({' OR '.join(clauses)})"
    if api_key_id:
        condition += " AND w.api_key = ?"
        params.append(raw_id(api_key_id))
    return condition, params


def _plain(cell: Any) -> Any:
    return bytes(cell) if isinstance(cell, memoryview) else cell
