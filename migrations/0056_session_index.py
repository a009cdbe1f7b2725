"""On PostgreSQL the rows of a session are found by an index whose equal keys share an entry: a tenth of the size.

SQLite, where an index has the primary key in each entry, keeps the former one. So does a large table, because its rows
cannot be written while an index is built; docs/upgrade.md has the statements for it.
"""

import peewee

LARGE_BYTES = 2 << 30  # read in seconds
SIZE = """SELECT pg_table_size('usage') + COALESCE((SELECT SUM(pg_table_size(relid)) FROM pg_partition_tree('usage')
WHERE relid <> 'usage'::regclass), 0)"""
STATEMENTS = (
    "CREATE INDEX usage_of_session ON usage (project, session) WHERE session IS NOT NULL",
    "DROP INDEX usage_session",
)


def up(migrator, db):
    if isinstance(db, peewee.SqliteDatabase) or db.execute_sql(SIZE).fetchone()[0] > LARGE_BYTES:
        return
    for statement in STATEMENTS:
        db.execute_sql(statement)
