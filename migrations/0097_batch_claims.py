"""The worker that has a batch, and until when: its claim ends early when that worker is known to be dead."""


def up(migrator, db):
    db.execute_sql("ALTER TABLE batch_job ADD COLUMN claimed_by VARCHAR(160) NOT NULL DEFAULT ''")
    db.execute_sql("ALTER TABLE batch_job ADD COLUMN claimed_until BIGINT NOT NULL DEFAULT 0")
