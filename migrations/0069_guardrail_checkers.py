"""The encrypted credential of the outside checker of a guardrail."""


def up(migrator, db):
    db.execute_sql("ALTER TABLE guardrail_rule ADD COLUMN checker_secret TEXT NOT NULL DEFAULT ''")
