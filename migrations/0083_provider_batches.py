"""Batches of providers that serve lines of the gateway's batches, and the lines that each has."""

STATEMENTS = """
CREATE TABLE provider_batch (
    id VARCHAR(64) NOT NULL PRIMARY KEY,
    batch VARCHAR(64) NOT NULL,
    organization VARCHAR(40) NOT NULL,
    mapping VARCHAR(200) NOT NULL,
    source VARCHAR(16) NOT NULL,
    credential VARCHAR(64) NOT NULL,
    place VARCHAR(500) NOT NULL,
    operation VARCHAR(32) NOT NULL,
    state VARCHAR(16) NOT NULL,
    remote VARCHAR(200) NOT NULL,
    upload VARCHAR(200) NOT NULL,
    files TEXT NOT NULL,
    word VARCHAR(40) NOT NULL,
    total BIGINT NOT NULL,
    succeeded BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    polls BIGINT NOT NULL,
    misses BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    next_at BIGINT NOT NULL,
    ended_at BIGINT,
    reason TEXT NOT NULL
);
CREATE INDEX provider_batch_batch ON provider_batch (batch);
CREATE TABLE provider_batch_line (
    batch VARCHAR(64) NOT NULL,
    number BIGINT NOT NULL,
    part VARCHAR(64) NOT NULL,
    hold VARCHAR(100) NOT NULL,
    PRIMARY KEY (batch, number)
);
CREATE INDEX provider_batch_line_part ON provider_batch_line (part)
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
