"""The index by which the newest sessions of a project are listed."""

STATEMENT = "CREATE INDEX usage_recent_session ON usage (project, request) WHERE session IS NOT NULL"


def up(migrator, db):
    db.execute_sql(STATEMENT)
