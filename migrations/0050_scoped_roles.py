"""Leads of teams and admins of projects."""

STATEMENTS = """
CREATE TABLE scoped_role (
    scope_id VARCHAR(40) NOT NULL,
    member_id VARCHAR(40) NOT NULL REFERENCES member (id) ON DELETE CASCADE,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (scope_id, member_id)
);
CREATE INDEX scoped_role_member ON scoped_role (member_id)
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
