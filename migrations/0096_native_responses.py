"""Background responses that a provider makes in its own background mode: what was sent, for other workers."""


def up(migrator, db):
    db.execute_sql("ALTER TABLE response_job ADD COLUMN sent TEXT NOT NULL DEFAULT ''")
