"""Reservations that belong to a job or a session: a row each, and leases that no worker owns."""

STATEMENTS = """
CREATE TABLE hold (
    id VARCHAR(64) NOT NULL PRIMARY KEY,
    organization VARCHAR(40) NOT NULL,
    amount_nusd BIGINT NOT NULL,
    output_cap BIGINT,
    placed_at BIGINT NOT NULL
);
ALTER TABLE lease ADD COLUMN hold VARCHAR(64);
CREATE INDEX lease_hold ON lease (hold) WHERE hold IS NOT NULL
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
