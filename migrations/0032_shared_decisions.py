"""The request under whose id a usage row's routing decision is stored, if it is another request with the same plan."""


def up(migrator, db):
    db.execute_sql(f"ALTER TABLE usage ADD COLUMN decision {db._field_types['BLOB']}")
