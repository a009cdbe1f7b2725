"""Links to requests and sessions that people shared, the columns that they chose for lists, and the page of a view."""

STATEMENTS = """
CREATE TABLE request_share (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    organization_id VARCHAR(40) NOT NULL REFERENCES organization (id) ON DELETE CASCADE,
    project_id VARCHAR(40) NOT NULL,
    user_id VARCHAR(40) NOT NULL,
    member_id VARCHAR(40) NOT NULL,
    kind VARCHAR(16) NOT NULL,
    subject VARCHAR(80) NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX request_share_owner ON request_share (organization_id, user_id);
CREATE INDEX request_share_subject ON request_share (project_id, kind, subject);
CREATE TABLE chosen_columns (
    user_id VARCHAR(40) NOT NULL REFERENCES "user" (id) ON DELETE CASCADE,
    page VARCHAR(16) NOT NULL,
    names VARCHAR(400) NOT NULL,
    PRIMARY KEY (user_id, page)
);
ALTER TABLE saved_view ADD COLUMN page VARCHAR(16) NOT NULL DEFAULT 'explore'
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
