"""Provisioning by SCIM: tokens of organizations, users and groups of an identity provider."""

STATEMENTS = """
CREATE TABLE scim_token (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    organization VARCHAR(40) NOT NULL REFERENCES organization (id) ON DELETE RESTRICT,
    name VARCHAR(255) NOT NULL,
    token_hash VARCHAR(64) NOT NULL UNIQUE,
    mask VARCHAR(32) NOT NULL,
    by_owner BOOLEAN NOT NULL,
    created_by VARCHAR(40) NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    used_at BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX scim_token_organization ON scim_token (organization);
CREATE TABLE scim_user (
    member_id VARCHAR(40) NOT NULL PRIMARY KEY REFERENCES member (id) ON DELETE CASCADE,
    organization VARCHAR(40) NOT NULL,
    user_name VARCHAR(255) NOT NULL,
    user_name_key VARCHAR(255) NOT NULL,
    external_id VARCHAR(255) NOT NULL,
    email VARCHAR(255) NOT NULL,
    attributes TEXT NOT NULL,
    made_account BOOLEAN NOT NULL,
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX scim_user_name ON scim_user (organization, user_name_key);
CREATE INDEX scim_user_external_id ON scim_user (organization, external_id);
CREATE INDEX scim_user_email ON scim_user (organization, email);
CREATE TABLE scim_group (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    organization VARCHAR(40) NOT NULL REFERENCES organization (id) ON DELETE RESTRICT,
    display_name VARCHAR(255) NOT NULL,
    name_key VARCHAR(255) NOT NULL,
    external_id VARCHAR(255) NOT NULL,
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX scim_group_name ON scim_group (organization, name_key);
CREATE TABLE scim_group_member (
    group_id VARCHAR(40) NOT NULL REFERENCES scim_group (id) ON DELETE CASCADE,
    member_id VARCHAR(40) NOT NULL REFERENCES member (id) ON DELETE CASCADE,
    PRIMARY KEY (group_id, member_id)
);
CREATE INDEX scim_group_member_member ON scim_group_member (member_id)
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
