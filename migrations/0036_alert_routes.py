"""The team whose alerts an address receives; "" = all alerts of its organization."""


def up(migrator, db):
    db.execute_sql("ALTER TABLE alert_hook ADD COLUMN team VARCHAR(40) NOT NULL DEFAULT ''")
