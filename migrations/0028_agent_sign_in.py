"""Sign-in of coding agents: the grant of a device code, the chosen team of a grant, and settings that agents fetch."""

STATEMENTS = """
ALTER TABLE device_code ADD COLUMN oauth_grant VARCHAR(40) NOT NULL DEFAULT '';
ALTER TABLE oauth_grant ADD COLUMN team VARCHAR(40) NOT NULL DEFAULT '';
CREATE TABLE managed_settings (
    scope_id VARCHAR(40) NOT NULL PRIMARY KEY,
    organization VARCHAR(40) NOT NULL REFERENCES organization (id),
    settings TEXT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX managed_settings_organization ON managed_settings (organization)
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
