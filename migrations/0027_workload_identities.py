"""Workload identities: rules by which tokens of an identity provider call models."""

STATEMENTS = """
CREATE TABLE workload_identity (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    organization_id VARCHAR(40) NOT NULL REFERENCES organization (id) ON DELETE RESTRICT,
    member_id VARCHAR(40) NOT NULL,
    api_key_id VARCHAR(40) NOT NULL,
    name VARCHAR(255) NOT NULL,
    issuer VARCHAR(255) NOT NULL,
    audience VARCHAR(255) NOT NULL,
    jwks_url TEXT NOT NULL,
    jwks TEXT NOT NULL,
    claims TEXT NOT NULL,
    attribution TEXT NOT NULL,
    status VARCHAR(16) NOT NULL DEFAULT 'active',
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX workload_identity_organization ON workload_identity (organization_id);
CREATE INDEX workload_identity_issuer ON workload_identity (issuer);
CREATE TABLE workload_audience (
    digest VARCHAR(64) NOT NULL PRIMARY KEY,
    organization VARCHAR(40) NOT NULL
)
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
