"""Payloads of requests for projects that retain them, and what keeping them costs."""

TABLES = """
ALTER TABLE usage ADD COLUMN storage_nusd BIGINT;
CREATE TABLE request_log (
    request {blob} NOT NULL PRIMARY KEY,
    organization {blob} NOT NULL,
    project {blob} NOT NULL,
    api_key {blob} NOT NULL,
    member {blob} NOT NULL,
    at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    operation VARCHAR(24) NOT NULL,
    path VARCHAR(255) NOT NULL,
    asked VARCHAR(255) NOT NULL,
    served VARCHAR(340) NOT NULL,
    status SMALLINT NOT NULL,
    flags SMALLINT NOT NULL,
    sent_bytes BIGINT NOT NULL,
    answer_bytes BIGINT NOT NULL,
    sent {blob} NOT NULL,
    answer {blob} NOT NULL,
    raw {blob}
);
CREATE INDEX request_log_project_at ON request_log (project, at);
CREATE INDEX request_log_expires_at ON request_log (expires_at)
"""


def up(migrator, db):
    for statement in TABLES.format(blob=db._field_types["BLOB"]).split(";"):
        db.execute_sql(statement)
