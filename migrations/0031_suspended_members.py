"""Members whom the identity provider that their organization requires has refused."""


def up(migrator, db):
    db.execute_sql("ALTER TABLE member ADD COLUMN suspended_at BIGINT")
