"""Routing: what workers tell each other of providers, and the decision of each request."""

import peewee

TABLES = """
CREATE TABLE health_delta (
    writer VARCHAR(32) NOT NULL,
    seq BIGINT NOT NULL,
    at BIGINT NOT NULL,
    payload {blob} NOT NULL,
    PRIMARY KEY (writer, seq)
);
CREATE INDEX health_delta_at ON health_delta (at);
CREATE TABLE decision (
    request {blob} NOT NULL PRIMARY KEY,
    project {blob} NOT NULL,
    record {blob} NOT NULL
){without_rowid}
"""


def up(migrator, db):
    sqlite = isinstance(db, peewee.SqliteDatabase)
    tables = TABLES.format(blob=db._field_types["BLOB"], without_rowid=" WITHOUT ROWID" if sqlite else "")
    for statement in tables.split(";"):
        db.execute_sql(statement)
