"""The repository that coding agents name with their outcomes."""

STATEMENTS = (
    "ALTER TABLE outcome ADD COLUMN repository VARCHAR(255) NOT NULL DEFAULT ''",
    "CREATE INDEX outcome_repository ON outcome (project, repository, hour)",
)


def up(migrator, db):
    for statement in STATEMENTS:
        db.execute_sql(statement)
