"""Second factors of people, who set a spending limit, and which program a session belongs to."""

TABLES = """
ALTER TABLE session ADD COLUMN agent VARCHAR(120) NOT NULL DEFAULT '';
CREATE TABLE second_factor (
    user_id VARCHAR(40) NOT NULL PRIMARY KEY,
    secret TEXT NOT NULL,
    confirmed_at BIGINT,
    last_step BIGINT NOT NULL,
    codes TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE TABLE limit_setter (
    scope_id VARCHAR(40) NOT NULL PRIMARY KEY,
    setters TEXT NOT NULL
)
"""


def up(migrator, db):
    for statement in TABLES.split(";"):
        db.execute_sql(statement)
