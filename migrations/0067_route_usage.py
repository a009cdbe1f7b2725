"""The cost of each request that a route served, and of the same usage at the route's reference model."""

import peewee

STATEMENTS = """
CREATE TABLE route_usage (
    request {bytes} NOT NULL,
    attempt SMALLINT NOT NULL,
    organization {bytes} NOT NULL,
    project {bytes} NOT NULL,
    route VARCHAR(64) NOT NULL,
    version INTEGER NOT NULL,
    rule VARCHAR(80) NOT NULL,
    served VARCHAR(255) NOT NULL,
    finish VARCHAR(32) NOT NULL,
    failed SMALLINT NOT NULL,
    duration_ms BIGINT NOT NULL,
    cost_nusd BIGINT NOT NULL,
    reference_nusd BIGINT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (request, attempt)
);
CREATE INDEX route_usage_organization ON route_usage (organization, at);
CREATE INDEX route_usage_at ON route_usage (at)
"""


def up(migrator, db):
    kind = "BLOB" if isinstance(db, peewee.SqliteDatabase) else "BYTEA"
    for statement in STATEMENTS.format(bytes=kind).split(";"):
        db.execute_sql(statement)
