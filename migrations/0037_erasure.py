"""The audit entry that vouches for the changed text of another one, after a person was erased; null = unchanged."""


def up(migrator, db):
    db.execute_sql("ALTER TABLE audit ADD COLUMN redacted_by BIGINT")
