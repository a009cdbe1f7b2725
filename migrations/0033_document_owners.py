"""The organization of a stored answer, which has a share of their room."""


def up(migrator, db):
    db.execute_sql("ALTER TABLE document ADD COLUMN owner VARCHAR(40)")
