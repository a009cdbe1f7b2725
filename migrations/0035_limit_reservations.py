"""Whether a limit reserves the highest or the likely cost of requests; "" = the default of its scope."""


def up(migrator, db):
    db.execute_sql("ALTER TABLE budget ADD COLUMN reservation VARCHAR(8) NOT NULL DEFAULT ''")
