"""Responses that are made in the background, and the events of their streams."""

import peewee

STATEMENTS = """
CREATE TABLE response_job (
    id VARCHAR(64) NOT NULL PRIMARY KEY,
    organization VARCHAR(40) NOT NULL,
    project VARCHAR(40) NOT NULL,
    state VARCHAR(16) NOT NULL,
    created_at BIGINT NOT NULL,
    completed_at BIGINT,
    due_at BIGINT,
    request TEXT NOT NULL,
    response TEXT NOT NULL,
    api_key VARCHAR(40) NOT NULL
);
CREATE INDEX response_job_due ON response_job (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX response_job_organization ON response_job (organization, state);
CREATE INDEX response_job_completed ON response_job (completed_at) WHERE completed_at IS NOT NULL;
CREATE TABLE response_event (
    job VARCHAR(64) NOT NULL,
    first BIGINT NOT NULL,
    following BIGINT NOT NULL,
    frames {blob} NOT NULL,
    PRIMARY KEY (job, first)
)
"""


def up(migrator, db):
    blob = "BLOB" if isinstance(db, peewee.SqliteDatabase) else "BYTEA"
    for statement in STATEMENTS.format(blob=blob).split(";"):
        db.execute_sql(statement)
