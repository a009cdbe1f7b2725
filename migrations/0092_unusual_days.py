"""Whether an organization holds keys on unusual days; and the turns of sessions that lost their prompt cache."""

import peewee

STATEMENTS = """
ALTER TABLE organization ADD COLUMN hold_unusual BOOLEAN NOT NULL DEFAULT FALSE;
CREATE TABLE cache_loss (
    request {bytes} NOT NULL PRIMARY KEY,
    project {bytes} NOT NULL,
    api_key {bytes} NOT NULL,
    session VARCHAR(64) NOT NULL,
    cause VARCHAR(64) NOT NULL,
    tokens BIGINT NOT NULL,
    cost_nusd BIGINT NOT NULL,
    at BIGINT NOT NULL
);
CREATE INDEX cache_loss_project ON cache_loss (project, at);
CREATE INDEX cache_loss_key ON cache_loss (api_key, at);
CREATE INDEX cache_loss_at ON cache_loss (at)
"""


def up(migrator, db):
    kind = "BLOB" if isinstance(db, peewee.SqliteDatabase) else "BYTEA"
    for statement in STATEMENTS.format(bytes=kind).split(";"):
        db.execute_sql(statement)
