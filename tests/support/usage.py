"""Usage rows for tests, and their sums in plain Python, which rollups must equal."""

import random
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from gateway import ids
from gateway.clock import HOUR_US
from gateway.metering.figures import CLIENT_CODES, EXTRA_COSTS, EXTRA_COUNTS, FIGURES
from gateway.metering.models import BYOK, CACHED, CREDITS, SETTLEMENT
from gateway.metering.rollups.rollup_table import BLOCK_HOURS, HOURS, VALUES, Series
from gateway.metering.usage_table import COLUMNS, UsageRecord
from gateway.store.database import Database
from gateway.store.partitions import id_at

PROJECTS = [bytes([1]) * 16, bytes([2]) * 16]
KEYS = [bytes([number]) * 16 for number in range(10, 15)]
EXTRA = orjson.dumps(
    {"units": {"input_audio": 5, "output_image": 7, "searches": 3}, "nusd": {"images": 11, "request": 2, "ocr": 9}}
).decode()
INSERT = f"INSERT INTO usage ({COLUMNS}) VALUES ({', '.join('?' * len(UsageRecord._fields))})"
NOTHING = dict.fromkeys(UsageRecord._fields, 0) | dict.fromkeys(
    ("operation", "provider", "asked", "served", "source", "finish", "price_version"), ""
)


def request_at(at_us: int) -> bytes:
    """Return a request id with this time."""
    return id_at(at_us)[:6] + bytes.fromhex(ids.new_hex())[6:]


def usage_row(at_us: int, **fields: Any) -> UsageRecord:
    """Return the usage row of a request at that time, recorded shortly after."""
    owners = dict.fromkeys(("organization", "project", "api_key", "member"), bytes(16))
    values = {
        **NOTHING,
        **UsageRecord._field_defaults,
        **owners,
        "at": at_us,
        "posted_at": at_us + 5,
        "request": request_at(at_us),
        **fields,
    }
    return UsageRecord(**values)


def random_row(dice: random.Random, at_us: int, **fields: Any) -> UsageRecord:
    """Return a row of one of PROJECTS and KEYS, with values that reports tell apart."""
    key = dice.randrange(len(KEYS))
    values = {
        "project": PROJECTS[key % 2],
        "api_key": KEYS[key],
        "provider": dice.choice(("vendor", "other")),
        "served": dice.choice(("small", "large")),
        "operation": "embeddings" if key == 3 else "chat",
        "source": dice.choice(("", "app", "codex")),
        "cost_nusd": dice.randrange(10**12),
        "input_nusd": dice.randrange(100),
        "input": dice.randrange(50),
        "cache_read": dice.randrange(3),
        "output": dice.randrange(50),
        "mode": dice.choice((CREDITS, BYOK)),
        "flags": dice.choice((0, CACHED)),
        "error": dice.choice((None, None, "timeout", "client_error")),
        "extra": dice.choice((None, None, EXTRA)),
        "storage_nusd": dice.choice((None, 40)),
        "session": dice.choice((None, "one", "two's")),
        "tags": dice.choice((None, '{"team": "search"}', '{"team": "a\\"b", "user": "x"}')),
    }
    return usage_row(at_us, **{**values, **fields})


def insert_rows(database: Database, *rows: UsageRecord) -> None:
    database.write(lambda: database.execute_many(INSERT, rows))


def insert_series(database: Database, row: UsageRecord, count: int, step_us: int) -> None:
    """Insert a row and `count` - 1 older ones that are otherwise the same, each by a step older than the one before."""
    if database.kind == "sqlite":
        times = range(row.at, row.at - count * step_us, -step_us)
        insert_rows(database, *[row._replace(at=at, posted_at=at + 5, request=request_at(at)) for at in times])
        return
    insert_rows(database, row)
    at = f"at - number * {step_us}::bigint"
    ident = f"decode(lpad(to_hex(({at}) / 1000), 12, '0') || lpad(to_hex(number), 20, '0'), 'hex')"
    changed = {"at": at, "posted_at": f"{at} + 5", "request": ident}
    values = ", ".join(changed.get(name, name) for name in UsageRecord._fields)
    select = f"SELECT {values} FROM usage, generate_series(1, {count - 1}) AS number WHERE request = ?"
    copy = f"INSERT INTO usage ({COLUMNS}) {select}"
    database.write(lambda: database.execute(copy, (row.request,)), patient=True)


def sum_up(rows: Sequence[UsageRecord]) -> dict[tuple[Any, ...], list[int]]:
    """Sum rows in plain Python: (series, owner, hour, name, provider) → VALUES."""
    last: dict[bytes, int] = {}
    for row in rows:
        last[row.request] = max(last.get(row.request, 0), row.attempt)
    sums: dict[tuple[Any, ...], list[int]] = {}
    for row in rows:
        figures = _figures(row, int(row.kind == SETTLEMENT and last[row.request] == row.attempt))
        values = [1, *(figures[name] for name in FIGURES)]
        hour, model = row.at // HOUR_US, (row.served, row.provider)
        for first, owner in ((Series.PROJECT, row.project), (Series.KEY, row.api_key)):
            for offset, names in ((0, ("", "")), (1, model), (2, (row.source, ""))):
                key = (first + offset, owner, hour, *names)
                sums[key] = [a + b for a, b in zip(sums.get(key, [0] * len(VALUES)), values, strict=True)]
            operation = None if row.operation == "chat" else row.operation
            own = {"": row.session, " operation": operation, " error": row.error}
            tags = {**own, **orjson.loads(row.tags or "{}")}
            for tag, value in tags.items():
                if value:
                    key = (Series.PROJECT_TAG + (first == Series.KEY), owner, hour, value, tag)
                    sums[key] = [a + b for a, b in zip(sums.get(key, [0] * len(VALUES)), values, strict=True)]
    return sums


def _figures(row: UsageRecord, last: int) -> dict[str, int]:
    byok, extra = row.mode == BYOK, orjson.loads(row.extra or "{}")
    storage = row.storage_nusd or 0
    figures = dict.fromkeys(FIGURES, 0) | {
        "requests": last,
        "errors": last * (row.error is not None),
        "client_errors": last * (row.error in CLIENT_CODES),
        "cached_requests": last * bool(row.flags & CACHED),
        "byok_requests": last * byok,
        "input_tokens": row.input + row.cache_read + row.cache_write,
        "output_tokens": row.output,
        "cached_tokens": row.cache_read,
        "cache_write_tokens": row.cache_write,
        "reasoning_tokens": row.reasoning,
        "cost_nusd": row.cost_nusd,
        "byok_nusd": byok * row.cost_nusd,
        "storage_nusd": storage,
        "byok_storage_nusd": byok * storage,
        "input_nusd": row.input_nusd,
        "output_nusd": row.output_nusd,
        "cached_nusd": row.cached_nusd,
        "cache_write_nusd": row.cache_write_nusd,
        "discount_nusd": row.discount_nusd or 0,
    }
    for kind, table in (("units", EXTRA_COUNTS), ("nusd", EXTRA_COSTS)):
        for name, kept in table.items():
            figures[name] += sum(extra.get(kind, {}).get(one, 0) for one in kept)
    return figures


def stored_sums(database: Database) -> dict[tuple[Any, ...], list[int]]:
    """Return the same sums from the rollups, with stored and recent parts added."""
    columns = "series, owner, hour, name, provider"
    sums = ", ".join(f"SUM({name})" for name in VALUES)
    sql = f"SELECT {columns}, {sums} FROM rollup WHERE series < 8 GROUP BY {columns}"
    rows = database.report(lambda: database.execute(sql).fetchall())
    return {
        (series, bytes(owner), hour, name, provider): [int(value or 0) for value in values]
        for series, owner, hour, name, provider, *values in rows
    }


def stored_days(database: Database) -> dict[tuple[Any, ...], list[int]]:
    """Return the stored sums of days; the hour is the first hour of the day."""
    sql = (
        f"SELECT series - 8, owner, hour, name, provider, {', '.join(VALUES)} FROM rollup "
        "WHERE series BETWEEN 8 AND 15 AND hour / 24 < (SELECT days_through FROM rollup_state) "
        "AND hour / 24 NOT IN (SELECT day FROM rollup_day)"
    )
    rows = database.report(lambda: database.execute(sql).fetchall())
    return {
        (series, bytes(owner), hour, name, provider): [int(value or 0) for value in values]
        for series, owner, hour, name, provider, *values in rows
    }


def stored_blocks(database: Database) -> dict[tuple[Any, ...], list[int]]:
    """Return the stored sums of blocks of days."""
    sql = (
        f"SELECT series - 16, owner, hour, name, provider, {', '.join(VALUES)} FROM rollup WHERE series >= 16 "
        f"AND hour / {BLOCK_HOURS} IN (SELECT block FROM rollup_block WHERE made = 1)"
    )
    rows = database.report(lambda: database.execute(sql).fetchall())
    return {
        (series, bytes(owner), hour, name, provider): [int(value or 0) for value in values]
        for series, owner, hour, name, provider, *values in rows
    }


def made_blocks(database: Database) -> set[int]:
    """Return the blocks that are stored."""
    sql = "SELECT block FROM rollup_block WHERE made = 1"
    return {block for (block,) in database.read(lambda: database.execute(sql).fetchall())}


def count_removed(database: Database) -> int:
    """Return the number of removed rows in the rollups."""
    moved = f"SELECT rows FROM rollup JOIN rollup_hour USING (hour) WHERE series = {Series.PROJECT} AND part <> held"
    gone = "SELECT rows FROM removed_piece JOIN rollup_hour USING (hour) WHERE part = held"
    sql = f"SELECT SUM(rows) FROM ({moved} UNION ALL {gone}) r"
    return int(database.read(lambda: database.execute(sql).fetchone()[0] or 0))


def by_day(sums: dict[tuple[Any, ...], list[int]], days: Iterable[int]) -> dict[tuple[Any, ...], list[int]]:
    """Return the sums of days from sums of hours."""
    return by_steps(sums, days, HOURS)


def by_steps(sums: dict[tuple[Any, ...], list[int]], steps: Iterable[int], width: int) -> dict[tuple[Any, ...], Any]:
    """Return the sums of `steps` steps of `width` from sums of hours."""
    kept_steps, found = set(steps), {}
    for (series, owner, hour, *names), values in sums.items():
        if hour // width in kept_steps:
            key = (series, owner, hour // width * width, *names)
            found[key] = [a + b for a, b in zip(found.get(key, [0] * len(VALUES)), values, strict=True)]
    return found
