"""Passkeys of people, and the challenges that browsers have to sign."""

STATEMENTS = """
CREATE TABLE passkey (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    user_id VARCHAR(40) NOT NULL,
    credential_hash VARCHAR(64) NOT NULL UNIQUE,
    credential TEXT NOT NULL,
    public_key TEXT NOT NULL,
    sign_count BIGINT NOT NULL,
    name VARCHAR(120) NOT NULL,
    transports VARCHAR(255) NOT NULL,
    synced BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    used_at BIGINT NOT NULL
);
CREATE INDEX passkey_user ON passkey (user_id);
CREATE TABLE passkey_challenge (
    hash VARCHAR(64) NOT NULL PRIMARY KEY,
    purpose VARCHAR(16) NOT NULL,
    binding VARCHAR(64) NOT NULL,
    user_id VARCHAR(40) NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX passkey_challenge_expires ON passkey_challenge (expires_at);
ALTER TABLE second_factor ADD COLUMN by_passkey BIGINT NOT NULL DEFAULT 0
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
