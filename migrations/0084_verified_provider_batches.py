"""Whether a provider's batch is certainly one of the gateway: one that was found again by its size may not be."""


def up(migrator, db):
    db.execute_sql("ALTER TABLE provider_batch ADD COLUMN verified BOOLEAN NOT NULL DEFAULT TRUE")
