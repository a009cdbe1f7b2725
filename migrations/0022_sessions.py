"""Sessions and tags of usage rows, budgets of sessions and runs, and periods of budgets with a time zone."""

import peewee

STATEMENTS = """
ALTER TABLE usage ADD COLUMN session VARCHAR(64);
ALTER TABLE usage ADD COLUMN tags TEXT;
CREATE INDEX usage_session ON usage (project, session, request) WHERE session IS NOT NULL;
CREATE TABLE session_budget (
    scope_id VARCHAR(40) NOT NULL PRIMARY KEY,
    session_nusd BIGINT,
    run_nusd BIGINT
);
ALTER TABLE budget ADD COLUMN begun_at BIGINT;
CREATE INDEX budget_begun_at ON budget (begun_at) WHERE begun_at IS NOT NULL
"""
# SQLite does not limit the length of text.
WIDER = "ALTER TABLE budget ALTER COLUMN period TYPE VARCHAR(64)"


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
    if not isinstance(db, peewee.SqliteDatabase):
        db.execute_sql(WIDER)
