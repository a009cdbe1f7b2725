"""Single sign-on: identity providers, domains, linked identities, sign-ins, and rules for groups of people."""

STATEMENTS = """
CREATE TABLE identity_provider (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    organization VARCHAR(40) NOT NULL REFERENCES organization (id) ON DELETE RESTRICT,
    name VARCHAR(80) NOT NULL,
    issuer VARCHAR(512) NOT NULL,
    client_id VARCHAR(255) NOT NULL,
    client_secret TEXT NOT NULL,
    settings TEXT NOT NULL,
    active BOOLEAN NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX identity_provider_organization ON identity_provider (organization);
CREATE TABLE identity_domain (
    provider VARCHAR(40) NOT NULL REFERENCES identity_provider (id) ON DELETE CASCADE,
    domain VARCHAR(255) NOT NULL,
    organization VARCHAR(40) NOT NULL,
    token VARCHAR(80) NOT NULL,
    verified_at BIGINT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (provider, domain)
);
CREATE INDEX identity_domain_domain ON identity_domain (domain);
CREATE TABLE user_identity (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    organization VARCHAR(40) NOT NULL,
    issuer VARCHAR(512) NOT NULL,
    subject VARCHAR(255) NOT NULL,
    user_id VARCHAR(40) NOT NULL REFERENCES "user" (id) ON DELETE CASCADE,
    provider VARCHAR(80) NOT NULL,
    email VARCHAR(255) NOT NULL,
    created_at BIGINT NOT NULL,
    used_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX user_identity_subject ON user_identity (organization, issuer, subject);
CREATE INDEX user_identity_user ON user_identity (user_id);
CREATE TABLE sso_login (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    user_id VARCHAR(40) NOT NULL REFERENCES "user" (id) ON DELETE CASCADE,
    organization VARCHAR(40) NOT NULL,
    provider VARCHAR(80) NOT NULL,
    issuer VARCHAR(512) NOT NULL,
    subject VARCHAR(255) NOT NULL,
    sid VARCHAR(255) NOT NULL,
    refresh_token TEXT NOT NULL,
    id_token_hint TEXT NOT NULL,
    failures INTEGER NOT NULL,
    created_at BIGINT NOT NULL,
    checked_at BIGINT NOT NULL,
    check_at BIGINT NOT NULL,
    valid_until BIGINT NOT NULL
);
CREATE INDEX sso_login_user ON sso_login (user_id);
CREATE INDEX sso_login_check ON sso_login (check_at);
CREATE INDEX sso_login_subject ON sso_login (issuer, subject);
ALTER TABLE session ADD COLUMN sso_login VARCHAR(40);
CREATE INDEX session_sso_login ON session (sso_login);
ALTER TABLE device_code ADD COLUMN sso_login VARCHAR(40);
ALTER TABLE organization ADD COLUMN sso_required BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE organization ADD COLUMN break_glass VARCHAR(40) NOT NULL DEFAULT '';
CREATE TABLE group_rule (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    organization VARCHAR(40) NOT NULL REFERENCES organization (id) ON DELETE RESTRICT,
    name VARCHAR(255) NOT NULL,
    role VARCHAR(16) NOT NULL,
    teams TEXT NOT NULL,
    limits TEXT NOT NULL,
    priority INTEGER NOT NULL,
    set_by VARCHAR(80) NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX group_rule_name ON group_rule (organization, name);
CREATE TABLE member_group (
    member VARCHAR(40) NOT NULL REFERENCES member (id) ON DELETE CASCADE,
    source VARCHAR(80) NOT NULL,
    name VARCHAR(255) NOT NULL,
    organization VARCHAR(40) NOT NULL,
    PRIMARY KEY (member, source, name)
);
CREATE INDEX member_group_name ON member_group (organization, name);
CREATE TABLE group_grant (
    member VARCHAR(40) NOT NULL PRIMARY KEY REFERENCES member (id) ON DELETE CASCADE,
    role VARCHAR(16) NOT NULL,
    teams TEXT NOT NULL,
    limits TEXT NOT NULL,
    stale BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE INDEX group_grant_stale ON group_grant (stale)
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
