"""The table of usage in ClickHouse: its columns, its rows as JSON, and the SQL that reads them from the database.

A row is one attempt with all columns of `usage`, and all figures of reports computed. Rows with equal keys are one row:
the newest `version` counts, so a row may be delivered any number of times.
"""

from collections.abc import Sequence
from typing import Any

import orjson

from gateway.metering.figures import FIGURES, figures_sql, last_params, rows_sql
from gateway.store.database import Database

IDS = ("request", "organization", "project", "api_key", "member")
TEXTS = ("operation", "provider", "asked", "served", "source", "finish", "error")
FREE_TEXTS = ("price_version", "label", "session", "tags", "extra")
NUMBERS = ("attempt", "kind", "status", "mode", "basis", "flags", "duration_ms", "ttft_ms")
COUNTS = ("input", "cache_read", "cache_write", "output", "reasoning", "discount_ppm")
TIMES = ("at", "posted_at")
# How many blocks of inserts a table remembers, to ignore repeated ones.
DEDUPLICATION_WINDOW = 1_000

COLUMNS = {
    **dict.fromkeys(IDS, "String"),
    **dict.fromkeys(TEXTS, "LowCardinality(String)"),
    **dict.fromkeys(FREE_TEXTS, "String"),
    **dict.fromkeys((*NUMBERS, *COUNTS), "Int32"),
}
SELECTED = (*COLUMNS, *TIMES)
WRITTEN = {**COLUMNS, "at_us": "Int64", "posted_us": "Int64", **dict.fromkeys(FIGURES, "Int64")}
TYPES = {**WRITTEN, "version": "UInt64"}
# The value of a column in which a usage row has none.
EMPTY = [0 if "Int" in kind else "" for kind in [*WRITTEN.values()][len(IDS) :]]


def table_sql(table: str) -> tuple[str, ...]:
    """Return the statements that create the table, and add the columns that an earlier release did not have."""
    columns = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
    added = ", ".join(f"ADD COLUMN IF NOT EXISTS {name} {kind}" for name, kind in TYPES.items())
    return (
        f"CREATE TABLE IF NOT EXISTS {table} ({columns}, "
        "at DateTime64(6, 'UTC') ALIAS fromUnixTimestamp64Micro(at_us)) "
        "ENGINE = ReplacingMergeTree(version) PARTITION BY toYYYYMM(fromUnixTimestamp64Micro(at_us, 'UTC')) "
        "ORDER BY (project, at_us, request, attempt, kind) "
        f"SETTINGS non_replicated_deduplication_window = {DEDUPLICATION_WINDOW}",
        f"ALTER TABLE {table} {added}",
    )


def fetch(database: Database, condition: str, params: Sequence[Any], horizon_us: int) -> list[Sequence[Any]]:
    """Return the usage rows `w` that meet a condition; rows posted before `horizon_us` decide which attempt is the
    last of its request. Inside a report."""
    columns = ", ".join(f"u.{name}" for name in SELECTED)
    sql = f"SELECT {columns}, {figures_sql(database)} FROM {rows_sql(condition)}"
    return database.fetch(sql, (*last_params(horizon_us, b""), *params))


def write(rows: Sequence[Sequence[Any]], version: int) -> bytes:
    """Return rows of `fetch` as JSONEachRow."""
    lines = []
    for row in rows:
        values: list[Any] = [bytes(value).hex() for value in row[: len(IDS)]]
        values += [empty if value is None else value for value, empty in zip(row[len(IDS) :], EMPTY, strict=True)]
        line: dict[str, Any] = dict(zip(WRITTEN, values, strict=True))
        line["version"] = version
        lines.append(orjson.dumps(line))
    return b"\n".join(lines)
