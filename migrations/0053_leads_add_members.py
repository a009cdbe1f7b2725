"""Whether the leads of an organization's teams add members of the organization to their teams."""


def up(migrator, db):
    db.execute_sql("ALTER TABLE organization ADD COLUMN leads_add_members BOOLEAN NOT NULL DEFAULT FALSE")
