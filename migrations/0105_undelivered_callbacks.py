"""Callbacks that were not delivered, which pages list."""


def up(migrator, db):
    for table in ("video_callback", "job_callback"):
        db.execute_sql(
            f"CREATE INDEX IF NOT EXISTS {table}_undelivered ON {table} (job) WHERE state IN ('retrying', 'failed')"
        )
