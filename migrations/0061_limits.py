"""Spending limits of any subject as rows, and what their budgets counted."""

STATEMENTS = """
CREATE TABLE limits (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    organization VARCHAR(40) NOT NULL,
    name VARCHAR(64) NOT NULL,
    subjects TEXT NOT NULL,
    amount_nusd BIGINT NOT NULL,
    limit_nusd BIGINT,
    alert_at VARCHAR(40) NOT NULL DEFAULT '',
    period VARCHAR(64) NOT NULL DEFAULT '',
    actions TEXT NOT NULL DEFAULT '[]',
    reservation VARCHAR(8) NOT NULL DEFAULT '',
    values_of VARCHAR(16) NOT NULL DEFAULT 'request',
    members BIGINT NOT NULL DEFAULT 0,
    raise_nusd BIGINT NOT NULL DEFAULT 0,
    raise_until BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    deleted_at BIGINT
);
CREATE UNIQUE INDEX limits_name ON limits (organization, name) WHERE deleted_at IS NULL;
CREATE INDEX limits_deleted ON limits (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX limits_raised ON limits (raise_until) WHERE raise_until IS NOT NULL;
ALTER TABLE budget ADD COLUMN limit_id VARCHAR(40) NOT NULL DEFAULT '';
ALTER TABLE budget ADD COLUMN member VARCHAR(600) NOT NULL DEFAULT '';
ALTER TABLE budget ADD COLUMN past_nusd BIGINT NOT NULL DEFAULT 0;
CREATE INDEX budget_limit ON budget (limit_id, id) WHERE limit_id <> ''
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
