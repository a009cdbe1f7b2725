"""Batches, the results of their lines, and the callbacks about their ends."""

import peewee

STATEMENTS = """
CREATE TABLE batch_job (
    id VARCHAR(64) NOT NULL PRIMARY KEY,
    organization VARCHAR(40) NOT NULL,
    project VARCHAR(40) NOT NULL,
    state VARCHAR(16) NOT NULL,
    endpoint VARCHAR(64) NOT NULL,
    created_at BIGINT NOT NULL,
    started_at BIGINT,
    canceled_at BIGINT,
    completed_at BIGINT,
    due_at BIGINT,
    deadline_at BIGINT NOT NULL,
    total BIGINT NOT NULL,
    done BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    bound_nusd BIGINT NOT NULL,
    cost_nusd BIGINT NOT NULL,
    input VARCHAR(64) NOT NULL,
    task TEXT NOT NULL,
    outcome TEXT NOT NULL,
    api_key VARCHAR(40) NOT NULL
);
CREATE INDEX batch_job_due ON batch_job (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX batch_job_project ON batch_job (project, id);
CREATE INDEX batch_job_completed ON batch_job (completed_at) WHERE completed_at IS NOT NULL;
CREATE TABLE batch_line (
    batch VARCHAR(64) NOT NULL,
    number BIGINT NOT NULL,
    request VARCHAR(32) NOT NULL,
    status INTEGER NOT NULL,
    cost_nusd BIGINT NOT NULL,
    answer {blob} NOT NULL,
    PRIMARY KEY (batch, number)
);
CREATE TABLE job_callback (
    id VARCHAR(80) NOT NULL PRIMARY KEY,
    job VARCHAR(64) NOT NULL,
    state VARCHAR(16) NOT NULL,
    due_at BIGINT,
    attempts TEXT NOT NULL
);
CREATE INDEX job_callback_due ON job_callback (due_at) WHERE due_at IS NOT NULL
"""


def up(migrator, db):
    blob = "BLOB" if isinstance(db, peewee.SqliteDatabase) else "BYTEA"
    for statement in STATEMENTS.format(blob=blob).split(";"):
        db.execute_sql(statement)
