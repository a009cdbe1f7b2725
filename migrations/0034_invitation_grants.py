"""The team and the spending limits that a person gets with an invitation."""


def up(migrator, db):
    db.execute_sql("ALTER TABLE invitation ADD COLUMN team_id VARCHAR(40) NOT NULL DEFAULT ''")
    db.execute_sql("ALTER TABLE invitation ADD COLUMN limits TEXT NOT NULL DEFAULT '{}'")
