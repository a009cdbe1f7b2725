"""Hourly and daily sums of usage, what was removed of its rows, and commits that came late."""

import peewee

COUNTS = (
    *("rows", "requests", "errors", "client_errors", "cached_requests", "byok_requests"),
    *("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens"),
)
AMOUNTS = (
    *("cost", "byok", "storage", "byok_storage", "input", "output", "cached", "cache_write", "request"),
    *("image_input", "image_output", "audio_input", "audio_output", "video_output", "discount"),
)

TABLES = """
CREATE TABLE rollup (
    series SMALLINT NOT NULL,
    owner {blob} NOT NULL,
    hour INTEGER NOT NULL,
    part SMALLINT NOT NULL,
    name VARCHAR(255) NOT NULL,
    provider VARCHAR(80) NOT NULL,
    updated_at BIGINT,
    {counts},
    {amounts},
    PRIMARY KEY (series, owner, hour, part, name, provider)
){without_rowid};
CREATE INDEX rollup_by_hour ON rollup (hour, series);
CREATE TABLE rollup_hour (
    hour INTEGER NOT NULL PRIMARY KEY,
    low VARCHAR(32) NOT NULL,
    high VARCHAR(32) NOT NULL,
    dirty SMALLINT NOT NULL
);
CREATE TABLE rollup_day (
    day INTEGER NOT NULL PRIMARY KEY,
    stamp BIGINT NOT NULL
);
CREATE TABLE rollup_state (
    id SMALLINT NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL,
    watermark BIGINT NOT NULL,
    fill_until BIGINT NOT NULL,
    filled VARCHAR(32),
    days_through INTEGER NOT NULL,
    purged VARCHAR(32) NOT NULL,
    counted TEXT NOT NULL
);
CREATE TABLE removed_spend (
    kind VARCHAR(16) NOT NULL,
    owner VARCHAR(32) NOT NULL,
    hour INTEGER NOT NULL,
    nusd {amount} NOT NULL,
    PRIMARY KEY (kind, owner, hour)
);
CREATE TABLE late_commit (
    writer VARCHAR(32) NOT NULL PRIMARY KEY,
    since BIGINT NOT NULL,
    at BIGINT NOT NULL
)
"""


def up(migrator, db):
    sqlite = isinstance(db, peewee.SqliteDatabase)
    # Sums of amounts may leave 64 bits; SQLite keeps the nearest double then.
    amount = "BIGINT" if sqlite else "NUMERIC"
    tables = TABLES.format(
        blob=db._field_types["BLOB"],
        without_rowid=" WITHOUT ROWID" if sqlite else "",
        counts=",\n    ".join(f"{name} BIGINT" for name in COUNTS),
        amounts=",\n    ".join(f"{name}_nusd {amount}" for name in AMOUNTS),
        amount=amount,
    )
    for statement in tables.split(";"):
        db.execute_sql(statement)
