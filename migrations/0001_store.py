"""The store's own tables: control plane, leadership, journal marks, installation, documents."""

TABLES = """
CREATE TABLE control (
    id INTEGER NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL,
    epoch BIGINT NOT NULL
);
CREATE TABLE worker (
    epoch BIGINT NOT NULL PRIMARY KEY,
    node VARCHAR(255) NOT NULL,
    expires_at BIGINT NOT NULL,
    seen_version BIGINT NOT NULL
);
CREATE TABLE leader (
    name VARCHAR(64) NOT NULL PRIMARY KEY,
    worker BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE TABLE journal (
    writer VARCHAR(32) NOT NULL PRIMARY KEY,
    seq BIGINT NOT NULL,
    at BIGINT NOT NULL
);
CREATE TABLE installation (
    name VARCHAR(64) NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);
CREATE TABLE document (
    kind VARCHAR(32) NOT NULL,
    key VARCHAR(255) NOT NULL,
    value {blob} NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (kind, key)
);
CREATE INDEX document_expires_at ON document (expires_at);
CREATE INDEX document_kind_expires_at ON document (kind, expires_at);
INSERT INTO control (id, version, epoch) VALUES (1, 1, 0)
"""


def up(migrator, db):
    blob = db._field_types["BLOB"]
    for statement in TABLES.format(blob=blob).split(";"):
        db.execute_sql(statement)
