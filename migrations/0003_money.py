"""Money: budgets, leases of them, the ledger, rate limits and one usage row an attempt."""

import peewee

TABLES = """
CREATE TABLE budget (
    id VARCHAR(64) NOT NULL PRIMARY KEY,
    scope VARCHAR(16) NOT NULL,
    scope_id VARCHAR(40) NOT NULL,
    kind VARCHAR(16) NOT NULL,
    limit_nusd BIGINT,
    settled_nusd BIGINT NOT NULL,
    leased_nusd BIGINT NOT NULL,
    period VARCHAR(16) NOT NULL,
    window_start BIGINT,
    generation BIGINT NOT NULL
);
CREATE TABLE lease (
    id BIGINT NOT NULL PRIMARY KEY,
    budget VARCHAR(64) NOT NULL,
    worker BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    granted_nusd BIGINT NOT NULL,
    spent_nusd BIGINT NOT NULL,
    taken_at BIGINT NOT NULL,
    returned_at BIGINT
);
CREATE INDEX lease_budget ON lease (budget);
CREATE INDEX lease_worker ON lease (worker);
CREATE TABLE ledger (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    organization VARCHAR(40) NOT NULL,
    kind VARCHAR(16) NOT NULL,
    amount_nusd BIGINT NOT NULL,
    ref VARCHAR(255) NOT NULL,
    at BIGINT NOT NULL,
    note VARCHAR(255) NOT NULL
);
CREATE UNIQUE INDEX ledger_kind_ref ON ledger (kind, ref);
CREATE INDEX ledger_organization_at ON ledger (organization, at);
CREATE TABLE rate_limit (
    scope VARCHAR(16) NOT NULL,
    scope_id VARCHAR(255) NOT NULL,
    kind VARCHAR(16) NOT NULL,
    amount BIGINT NOT NULL,
    PRIMARY KEY (scope, scope_id, kind)
);
CREATE TABLE usage (
    at BIGINT NOT NULL,
    posted_at BIGINT NOT NULL,
    cost_nusd BIGINT NOT NULL,
    input_nusd BIGINT NOT NULL,
    output_nusd BIGINT NOT NULL,
    cached_nusd BIGINT NOT NULL,
    cache_write_nusd BIGINT NOT NULL,
    input INTEGER NOT NULL,
    cache_read INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    output INTEGER NOT NULL,
    reasoning INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,
    ttft_ms INTEGER NOT NULL,
    attempt SMALLINT NOT NULL,
    kind SMALLINT NOT NULL,
    status SMALLINT NOT NULL,
    mode SMALLINT NOT NULL,
    basis SMALLINT NOT NULL,
    flags SMALLINT NOT NULL,
    request {blob} NOT NULL,
    organization {blob} NOT NULL,
    project {blob} NOT NULL,
    api_key {blob} NOT NULL,
    member {blob} NOT NULL,
    operation VARCHAR(24) NOT NULL,
    provider VARCHAR(80) NOT NULL,
    asked VARCHAR(255) NOT NULL,
    served VARCHAR(255) NOT NULL,
    source VARCHAR(255) NOT NULL,
    finish VARCHAR(24) NOT NULL,
    price_version VARCHAR(40) NOT NULL,
    error VARCHAR(64),
    label VARCHAR(64),
    extra TEXT,
    PRIMARY KEY (request, attempt, kind)
){without_rowid};
CREATE INDEX usage_posted_at ON usage (posted_at)
"""

# What was booked stays booked: a correction is one more entry.
SQLITE_GUARD = """
CREATE TRIGGER ledger_{0} BEFORE {0} ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END
"""
POSTGRESQL_GUARD = (
    """CREATE FUNCTION refuse_ledger_change() RETURNS trigger AS $$
    BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$ LANGUAGE plpgsql""",
    """CREATE TRIGGER ledger_guard BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_ledger_change()""",
)


def up(migrator, db):
    sqlite = isinstance(db, peewee.SqliteDatabase)
    tables = TABLES.format(blob=db._field_types["BLOB"], without_rowid=" WITHOUT ROWID" if sqlite else "")
    for statement in tables.split(";"):
        db.execute_sql(statement)
    guards = [SQLITE_GUARD.format(verb) for verb in ("UPDATE", "DELETE")] if sqlite else POSTGRESQL_GUARD
    for statement in guards:
        db.execute_sql(statement)
