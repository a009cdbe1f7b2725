"""Tags of API keys, which all of their requests have."""


def up(migrator, db):
    db.execute_sql("ALTER TABLE api_key ADD COLUMN tags TEXT NOT NULL DEFAULT ''")
