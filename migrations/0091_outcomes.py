"""Outcomes that coding agents report: sums by hour, key, session, agent and model; the last value of each cumulative
series; the exports that were counted; and whether an organization compares people by them."""

import peewee

STATEMENTS = """
CREATE TABLE outcome (
    api_key {bytes} NOT NULL,
    hour INTEGER NOT NULL,
    session VARCHAR(64) NOT NULL,
    agent VARCHAR(32) NOT NULL,
    model VARCHAR(255) NOT NULL,
    organization {bytes} NOT NULL,
    project {bytes} NOT NULL,
    member {bytes} NOT NULL,
    sessions BIGINT NOT NULL,
    commits BIGINT NOT NULL,
    pull_requests BIGINT NOT NULL,
    lines_added BIGINT NOT NULL,
    lines_removed BIGINT NOT NULL,
    edits_accepted BIGINT NOT NULL,
    edits_rejected BIGINT NOT NULL,
    active_ms BIGINT NOT NULL,
    PRIMARY KEY (api_key, hour, session, agent, model)
);
CREATE INDEX outcome_project ON outcome (project, hour);
CREATE INDEX outcome_session ON outcome (session);
CREATE INDEX outcome_hour ON outcome (hour);
CREATE TABLE outcome_series (
    api_key {bytes} NOT NULL,
    series {bytes} NOT NULL,
    amount BIGINT NOT NULL,
    time_us BIGINT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (api_key, series)
);
CREATE INDEX outcome_series_at ON outcome_series (at);
CREATE TABLE outcome_export (
    api_key {bytes} NOT NULL,
    digest {bytes} NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (api_key, digest)
);
CREATE INDEX outcome_export_at ON outcome_export (at);
ALTER TABLE organization ADD COLUMN compare_people BOOLEAN NOT NULL DEFAULT FALSE
"""


def up(migrator, db):
    kind = "BLOB" if isinstance(db, peewee.SqliteDatabase) else "BYTEA"
    for statement in STATEMENTS.format(bytes=kind).split(";"):
        db.execute_sql(statement)
