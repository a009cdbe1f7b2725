"""Sign-in and the management API: sessions, device codes, invitations, attempts that are counted, skills."""

TABLES = (
    """CREATE TABLE session (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    user_id VARCHAR(40) NOT NULL REFERENCES "user" (id) ON DELETE CASCADE,
    token_hash VARCHAR(64) NOT NULL UNIQUE,
    created_at BIGINT NOT NULL,
    refreshed_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL)""",
    "CREATE INDEX session_by_user ON session (user_id)",
    "CREATE INDEX session_expires_at ON session (expires_at)",
    """CREATE TABLE device_code (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    code_hash VARCHAR(64) NOT NULL UNIQUE,
    user_code VARCHAR(16) NOT NULL UNIQUE,
    client VARCHAR(64) NOT NULL,
    status VARCHAR(16) NOT NULL,
    user_id VARCHAR(40) REFERENCES "user" (id) ON DELETE CASCADE,
    polled_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL)""",
    "CREATE INDEX device_code_expires_at ON device_code (expires_at)",
    """CREATE TABLE invitation (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    organization_id VARCHAR(40) NOT NULL REFERENCES organization (id) ON DELETE RESTRICT,
    email VARCHAR(255) NOT NULL,
    role VARCHAR(16) NOT NULL,
    token_hash VARCHAR(64) NOT NULL UNIQUE,
    invited_by VARCHAR(40) NOT NULL,
    status VARCHAR(16) NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL)""",
    "CREATE INDEX invitation_organization ON invitation (organization_id)",
    """CREATE TABLE attempt (
    subject VARCHAR(64) NOT NULL PRIMARY KEY,
    count INTEGER NOT NULL,
    ends_at BIGINT NOT NULL)""",
    "CREATE INDEX attempt_ends_at ON attempt (ends_at)",
    """CREATE TABLE skill (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    organization_id VARCHAR(40) NOT NULL REFERENCES organization (id) ON DELETE RESTRICT,
    name VARCHAR(64) NOT NULL,
    description TEXT NOT NULL,
    content TEXT NOT NULL,
    files TEXT NOT NULL,
    enabled BOOLEAN NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL)""",
    "CREATE UNIQUE INDEX skill_organization_name ON skill (organization_id, name)",
)


def up(migrator, db):
    for statement in TABLES:
        db.execute_sql(statement)
