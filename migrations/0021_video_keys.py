"""The API key that a video was requested with, "" for those of earlier releases: a customer key sees its own alone."""

STATEMENT = "ALTER TABLE video_job ADD COLUMN api_key VARCHAR(40) NOT NULL DEFAULT ''"


def up(migrator, db):
    db.execute_sql(STATEMENT)
