"""Sums of usage by operation and error: what removed rows contributed to them, and which release last changed the
sums."""

STATEMENTS = """
ALTER TABLE removed_piece ADD COLUMN operation VARCHAR(24);
ALTER TABLE removed_piece ADD COLUMN error VARCHAR(64);
ALTER TABLE rollup_state ADD COLUMN named BIGINT NOT NULL DEFAULT 0;
ALTER TABLE rollup_state ADD COLUMN named_until BIGINT NOT NULL DEFAULT 0
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
