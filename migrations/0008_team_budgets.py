"""Spending limits of teams, what of the usage counted against them, and caps on active keys."""

import peewee

TABLES = """
ALTER TABLE team ADD COLUMN limited BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE organization ADD COLUMN max_keys INTEGER;
ALTER TABLE organization ADD COLUMN max_member_keys INTEGER;
CREATE TABLE team_usage (
    request {blob} NOT NULL,
    attempt SMALLINT NOT NULL,
    kind SMALLINT NOT NULL,
    team {blob} NOT NULL,
    PRIMARY KEY (request, attempt, kind, team)
){without_rowid};
CREATE INDEX team_usage_team ON team_usage (team)
"""


def up(migrator, db):
    sqlite = isinstance(db, peewee.SqliteDatabase)
    tables = TABLES.format(blob=db._field_types["BLOB"], without_rowid=" WITHOUT ROWID" if sqlite else "")
    for statement in tables.split(";"):
        db.execute_sql(statement)
