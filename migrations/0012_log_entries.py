"""What usage rows do not tell of a request, custom metadata to search by, and indices for lists of requests."""

import peewee

TABLES = """
CREATE TABLE log_entry (
    request {blob} NOT NULL PRIMARY KEY,
    organization {blob} NOT NULL,
    project {blob} NOT NULL,
    api_key {blob} NOT NULL,
    member {blob} NOT NULL,
    requests INTEGER NOT NULL,
    status SMALLINT NOT NULL,
    operation VARCHAR(24) NOT NULL,
    path VARCHAR(255) NOT NULL,
    asked VARCHAR(255) NOT NULL,
    source VARCHAR(255) NOT NULL,
    error VARCHAR(64),
    label VARCHAR(64),
    metadata TEXT
){without_rowid};
CREATE INDEX log_entry_project ON log_entry (project, request);
CREATE INDEX log_entry_api_key ON log_entry (api_key, request);
CREATE INDEX log_entry_error ON log_entry (project, error, request) WHERE error IS NOT NULL;
CREATE INDEX log_entry_label ON log_entry (project, label, request) WHERE label IS NOT NULL;
CREATE TABLE log_tag (
    project {blob} NOT NULL,
    tag {blob} NOT NULL,
    request {blob} NOT NULL,
    PRIMARY KEY (project, tag, request)
){without_rowid};
CREATE INDEX request_log_project ON request_log (project, request);
CREATE INDEX usage_project ON usage (project, request);
CREATE INDEX usage_error ON usage (project, error, request) WHERE error IS NOT NULL;
CREATE INDEX usage_label ON usage (project, label, request) WHERE label IS NOT NULL
"""


def up(migrator, db):
    sqlite = isinstance(db, peewee.SqliteDatabase)
    tables = TABLES.format(blob=db._field_types["BLOB"], without_rowid=" WITHOUT ROWID" if sqlite else "")
    for statement in tables.split(";"):
        db.execute_sql(statement)
