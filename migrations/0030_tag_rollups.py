"""Sums of usage by tag and session: what removed rows contributed to them, and which release last changed the sums."""

import peewee

STATEMENTS = """
ALTER TABLE removed_piece ADD COLUMN session VARCHAR(64);
ALTER TABLE removed_piece ADD COLUMN tags TEXT;
ALTER TABLE rollup_state ADD COLUMN tagged BIGINT NOT NULL DEFAULT 0;
ALTER TABLE rollup_state ADD COLUMN tagged_until BIGINT NOT NULL DEFAULT 0
"""
# SQLite does not limit the length of text.
WIDER = """
ALTER TABLE removed_piece ALTER COLUMN low TYPE VARCHAR(64);
ALTER TABLE rollup ALTER COLUMN name TYPE VARCHAR(256)
"""


def up(migrator, db):
    statements = STATEMENTS
    if not isinstance(db, peewee.SqliteDatabase):
        statements = f"{STATEMENTS};{WIDER}"
    for statement in statements.split(";"):
        db.execute_sql(statement)
