"""The networks of pending entries, as keyed hashes: each has a share of a table that everyone uses."""

TABLES = ("device_code", "passkey_challenge", "oauth_client")


def up(migrator, db):
    for table in TABLES:
        db.execute_sql(f"ALTER TABLE {table} ADD COLUMN network VARCHAR(64) NOT NULL DEFAULT ''")
        db.execute_sql(f"CREATE INDEX {table}_network ON {table} (network)")
