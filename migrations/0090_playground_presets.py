"""Settings of the playground that people saved by name."""

STATEMENTS = """
CREATE TABLE playground_preset (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    organization_id VARCHAR(40) NOT NULL REFERENCES organization (id) ON DELETE CASCADE,
    project_id VARCHAR(40) NOT NULL REFERENCES project (id) ON DELETE CASCADE,
    user_id VARCHAR(40) NOT NULL,
    name VARCHAR(80) NOT NULL,
    content TEXT NOT NULL,
    shared BOOLEAN NOT NULL DEFAULT FALSE,
    created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX playground_preset_name ON playground_preset (project_id, user_id, name);
CREATE INDEX playground_preset_organization ON playground_preset (organization_id, user_id)
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
