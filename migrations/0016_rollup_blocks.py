"""Sums of blocks of days, figures of media, and which part of an hour is that of the rows which lie in the table."""

import peewee

COUNTS = ("searches", "pages", "images", "characters", "audio_ms", "video_ms", "code_sessions")
AMOUNTS = ("search", "page", "character", "code")

TABLE = """
CREATE TABLE rollup_block (
    block INTEGER NOT NULL PRIMARY KEY,
    stamp BIGINT NOT NULL,
    made SMALLINT NOT NULL
)
"""


def up(migrator, db):
    amount = "BIGINT" if isinstance(db, peewee.SqliteDatabase) else "NUMERIC"
    for name in COUNTS:
        db.execute_sql(f"ALTER TABLE rollup ADD COLUMN {name} BIGINT")
    for name in AMOUNTS:
        db.execute_sql(f"ALTER TABLE rollup ADD COLUMN {name}_nusd {amount}")
    db.execute_sql("ALTER TABLE rollup_hour ADD COLUMN held SMALLINT NOT NULL DEFAULT 0")
    db.execute_sql(TABLE)
    # Their rows tell of media what no sum does yet.
    db.execute_sql("UPDATE rollup_hour SET dirty = 1")
