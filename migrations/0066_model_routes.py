"""Routes of organizations: each with a draft, its versions, and the published one."""

STATEMENTS = """
CREATE TABLE model_route (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    organization_id VARCHAR(40) NOT NULL REFERENCES organization (id) ON DELETE RESTRICT,
    name VARCHAR(64) NOT NULL,
    project_id VARCHAR(40) NOT NULL DEFAULT '',
    aliases TEXT NOT NULL,
    draft TEXT NOT NULL,
    draft_by VARCHAR(80) NOT NULL,
    draft_at BIGINT NOT NULL,
    published INTEGER NOT NULL DEFAULT 0,
    published_by VARCHAR(80) NOT NULL DEFAULT '',
    published_at BIGINT,
    created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX model_route_name ON model_route (organization_id, name);
CREATE TABLE model_route_version (
    route_id VARCHAR(40) NOT NULL REFERENCES model_route (id) ON DELETE CASCADE,
    version INTEGER NOT NULL,
    document TEXT NOT NULL,
    created_by VARCHAR(80) NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (route_id, version)
)
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
