"""What rows counted that were removed of an hour piece by piece, until the hour is removed whole."""

import peewee

COUNTS = (
    *("rows", "requests", "errors", "client_errors", "cached_requests", "byok_requests"),
    *("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens"),
    *("searches", "pages", "images", "characters", "audio_ms", "video_ms", "code_sessions"),
)
AMOUNTS = (
    *("cost", "byok", "storage", "byok_storage", "input", "output", "cached", "cache_write", "request"),
    *("image_input", "image_output", "audio_input", "audio_output", "video_output", "discount"),
    *("search", "page", "character", "code"),
)

TABLE = """
CREATE TABLE removed_piece (
    hour INTEGER NOT NULL,
    part SMALLINT NOT NULL,
    low VARCHAR(32) NOT NULL,
    project {blob} NOT NULL,
    api_key {blob} NOT NULL,
    provider VARCHAR(80) NOT NULL,
    name VARCHAR(255) NOT NULL,
    source VARCHAR(255) NOT NULL,
    removed_at BIGINT,
    {counts},
    {amounts},
    PRIMARY KEY (hour, part, low, project, api_key, provider, name, source)
){without_rowid}
"""


def up(migrator, db):
    sqlite = isinstance(db, peewee.SqliteDatabase)
    # Sums of amounts may leave 64 bits; SQLite keeps the nearest double then.
    amount = "BIGINT" if sqlite else "NUMERIC"
    table = TABLE.format(
        blob=db._field_types["BLOB"],
        without_rowid=" WITHOUT ROWID" if sqlite else "",
        counts=",\n    ".join(f"{name} BIGINT" for name in COUNTS),
        amounts=",\n    ".join(f"{name}_nusd {amount}" for name in AMOUNTS),
    )
    db.execute_sql(table)
