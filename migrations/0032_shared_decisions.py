"""The request that stored the routing decision of a usage row, if it is another one with the same plan."""


def up(migrator, db):
    db.execute_sql(f"ALTER TABLE usage ADD COLUMN decision {db._field_types['BLOB']}")
