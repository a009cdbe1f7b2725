"""Files of projects, uploads of files in parts, and the parts. The content is in the folder of files."""

STATEMENTS = """
CREATE TABLE stored_file (
    id VARCHAR(64) NOT NULL PRIMARY KEY,
    organization VARCHAR(40) NOT NULL,
    project VARCHAR(40) NOT NULL,
    api_key VARCHAR(40) NOT NULL,
    state VARCHAR(16) NOT NULL,
    name TEXT NOT NULL,
    media_type VARCHAR(127) NOT NULL,
    purpose VARCHAR(32) NOT NULL,
    size BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    content VARCHAR(64) NOT NULL,
    made VARCHAR(64) NOT NULL
);
CREATE INDEX stored_file_project ON stored_file (project, id);
CREATE INDEX stored_file_organization ON stored_file (organization);
CREATE INDEX stored_file_expires ON stored_file (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX stored_file_content ON stored_file (content);
CREATE INDEX stored_file_api_key ON stored_file (api_key);
CREATE TABLE file_part (
    id VARCHAR(64) NOT NULL PRIMARY KEY,
    upload VARCHAR(64) NOT NULL,
    organization VARCHAR(40) NOT NULL,
    size BIGINT NOT NULL,
    content VARCHAR(64) NOT NULL
);
CREATE INDEX file_part_upload ON file_part (upload);
CREATE INDEX file_part_organization ON file_part (organization);
CREATE INDEX file_part_content ON file_part (content)
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
