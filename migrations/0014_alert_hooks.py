"""Addresses that organizations and operators are told alerts at; the secret that signs them is encrypted."""

STATEMENTS = """
CREATE TABLE alert_hook (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    organization VARCHAR(40) NOT NULL REFERENCES organization (id) ON DELETE RESTRICT,
    url TEXT NOT NULL,
    secret TEXT NOT NULL,
    events TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX alert_hook_organization ON alert_hook (organization)
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
