"""Views of usage that people saved."""

STATEMENTS = """
CREATE TABLE saved_view (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    organization_id VARCHAR(40) NOT NULL REFERENCES organization (id) ON DELETE CASCADE,
    user_id VARCHAR(40) NOT NULL,
    name VARCHAR(80) NOT NULL,
    query TEXT NOT NULL,
    shared BOOLEAN NOT NULL DEFAULT FALSE,
    created_at BIGINT NOT NULL
);
CREATE INDEX saved_view_organization ON saved_view (organization_id, user_id)
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
