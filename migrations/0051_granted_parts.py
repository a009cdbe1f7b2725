"""Teams and projects in which a group rule or an invitation gives a role."""


def up(migrator, db):
    for table in ("group_rule", "group_grant", "invitation"):
        db.execute_sql(f"ALTER TABLE {table} ADD COLUMN parts TEXT NOT NULL DEFAULT '[]'")
