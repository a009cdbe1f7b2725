"""Files that were uploaded to providers: one row for each file and account of a provider, until nothing of it remains
there."""

STATEMENTS = """
CREATE TABLE provider_file (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    file VARCHAR(40) NOT NULL,
    account VARCHAR(64) NOT NULL,
    organization VARCHAR(40) NOT NULL,
    provider VARCHAR(64) NOT NULL,
    model VARCHAR(255) NOT NULL,
    mapping VARCHAR(255) NOT NULL,
    source VARCHAR(16) NOT NULL,
    credential VARCHAR(128) NOT NULL,
    state VARCHAR(16) NOT NULL,
    claim VARCHAR(40) NOT NULL,
    remote VARCHAR(512) NOT NULL,
    reference VARCHAR(2048) NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    due_at BIGINT NOT NULL,
    tries INTEGER NOT NULL
);
CREATE UNIQUE INDEX provider_file_place ON provider_file (file, account);
CREATE INDEX provider_file_due ON provider_file (due_at)
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
