"""Service accounts of organizations, and the ids that clients choose for what they create."""

STATEMENTS = """
ALTER TABLE "user" ADD COLUMN kind VARCHAR(16) NOT NULL DEFAULT 'person';
CREATE TABLE service_account (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    organization_id VARCHAR(40) NOT NULL REFERENCES organization (id) ON DELETE RESTRICT,
    member_id VARCHAR(40) NOT NULL REFERENCES member (id) ON DELETE RESTRICT,
    name VARCHAR(255) NOT NULL,
    scopes TEXT NOT NULL,
    token_hash VARCHAR(64) NOT NULL UNIQUE,
    mask VARCHAR(32) NOT NULL,
    status VARCHAR(16) NOT NULL DEFAULT 'active',
    expires_at BIGINT,
    created_by VARCHAR(40) NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    last_used_at BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX service_account_organization ON service_account (organization_id);
CREATE TABLE client_id (
    organization VARCHAR(40) NOT NULL,
    kind VARCHAR(40) NOT NULL,
    client_id VARCHAR(80) NOT NULL,
    object_id VARCHAR(80) NOT NULL,
    digest VARCHAR(64) NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (organization, kind, client_id)
)
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
