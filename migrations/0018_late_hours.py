"""When rows of an hour were last found to be committed late: the closing of hours books them then."""


def up(migrator, db):
    db.execute_sql("ALTER TABLE rollup_hour ADD COLUMN late_at BIGINT NOT NULL DEFAULT 0")
