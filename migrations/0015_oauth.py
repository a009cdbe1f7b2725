"""OAuth: applications, what people allowed them, codes and tokens by keyed hash, and how often a key's tokens ended."""

STATEMENTS = """
ALTER TABLE api_key ADD COLUMN generation BIGINT NOT NULL DEFAULT 0;
CREATE TABLE oauth_client (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    name VARCHAR(120) NOT NULL,
    secret_hash VARCHAR(64) NOT NULL,
    metadata TEXT NOT NULL,
    key_id VARCHAR(40) NOT NULL,
    created_at BIGINT NOT NULL,
    used_at BIGINT NOT NULL
);
CREATE INDEX oauth_client_used ON oauth_client (used_at, created_at);
CREATE TABLE oauth_grant (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    api_key VARCHAR(40) NOT NULL REFERENCES api_key (id) ON DELETE CASCADE,
    generation BIGINT NOT NULL,
    user_id VARCHAR(40) NOT NULL,
    client VARCHAR(512) NOT NULL,
    client_name VARCHAR(120) NOT NULL,
    redirect_host VARCHAR(255) NOT NULL,
    scope VARCHAR(255) NOT NULL,
    audience VARCHAR(512) NOT NULL,
    created_at BIGINT NOT NULL,
    used_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX oauth_grant_user ON oauth_grant (user_id);
CREATE INDEX oauth_grant_key ON oauth_grant (api_key);
CREATE INDEX oauth_grant_client ON oauth_grant (client);
CREATE INDEX oauth_grant_expires ON oauth_grant (expires_at);
CREATE TABLE oauth_code (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    code_hash VARCHAR(64) NOT NULL UNIQUE,
    oauth_grant VARCHAR(40) NOT NULL REFERENCES oauth_grant (id) ON DELETE CASCADE,
    redirect_uri TEXT NOT NULL,
    challenge VARCHAR(128) NOT NULL,
    expires_at BIGINT NOT NULL,
    used_at BIGINT NOT NULL
);
CREATE INDEX oauth_code_grant ON oauth_code (oauth_grant);
CREATE TABLE oauth_token (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    token_hash VARCHAR(64) NOT NULL UNIQUE,
    kind VARCHAR(16) NOT NULL,
    oauth_grant VARCHAR(40) NOT NULL REFERENCES oauth_grant (id) ON DELETE CASCADE,
    scope VARCHAR(255) NOT NULL,
    expires_at BIGINT NOT NULL,
    used_at BIGINT NOT NULL
);
CREATE INDEX oauth_token_grant ON oauth_token (oauth_grant);
CREATE INDEX oauth_token_expires ON oauth_token (expires_at)
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
