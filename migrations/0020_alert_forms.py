"""The form in which an address for alerts is told, and the shares of a limit at which an alert is due."""

STATEMENTS = """
ALTER TABLE alert_hook ADD COLUMN form VARCHAR(16) NOT NULL DEFAULT '';
ALTER TABLE budget ADD COLUMN alert_at VARCHAR(40) NOT NULL DEFAULT ''
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
