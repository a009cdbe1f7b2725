"""Requests of members to raise a limit for a time."""

STATEMENTS = """
CREATE TABLE limit_request (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    organization VARCHAR(40) NOT NULL,
    name VARCHAR(64) NOT NULL,
    user_id VARCHAR(40) NOT NULL,
    amount_nusd BIGINT NOT NULL,
    until BIGINT NOT NULL,
    note VARCHAR(255) NOT NULL DEFAULT '',
    created_at BIGINT NOT NULL
);
CREATE INDEX limit_request_name ON limit_request (organization, name)
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
