"""Stored responses by turn: each row what is new in it, pieces that an organization's turns share, what it holds."""

import peewee

TABLES = """
CREATE TABLE stored_response (
    id VARCHAR(64) NOT NULL PRIMARY KEY,
    organization VARCHAR(64) NOT NULL,
    scope VARCHAR(160) NOT NULL,
    previous VARCHAR(64) NOT NULL,
    turns INTEGER NOT NULL,
    chain_bytes BIGINT NOT NULL,
    size BIGINT NOT NULL,
    children INTEGER NOT NULL,
    expires_at BIGINT NOT NULL,
    pieces {blob} NOT NULL,
    body {blob} NOT NULL
);
CREATE INDEX stored_response_ended ON stored_response (children, expires_at);
CREATE TABLE stored_piece (
    organization VARCHAR(64) NOT NULL,
    digest {blob} NOT NULL,
    uses BIGINT NOT NULL,
    size BIGINT NOT NULL,
    PRIMARY KEY (organization, digest)
){without_rowid};
CREATE TABLE stored_value (
    organization VARCHAR(64) NOT NULL,
    digest {blob} NOT NULL,
    value {blob} NOT NULL,
    PRIMARY KEY (organization, digest)
);
CREATE TABLE stored_total (
    organization VARCHAR(64) NOT NULL PRIMARY KEY,
    bytes BIGINT NOT NULL
)
"""


def up(migrator, db):
    sqlite = isinstance(db, peewee.SqliteDatabase)
    tables = TABLES.format(blob=db._field_types["BLOB"], without_rowid=" WITHOUT ROWID" if sqlite else "")
    for statement in tables.split(";"):
        db.execute_sql(statement)
