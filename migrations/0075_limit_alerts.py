"""The lowest share at which a limit warns, and the member that used most of a limit for each."""

import json

STATEMENTS = """
ALTER TABLE limits ADD COLUMN alert_from INTEGER;
ALTER TABLE limits ADD COLUMN top_budget VARCHAR(64) NOT NULL DEFAULT ''
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
    for ident, actions in db.execute_sql("SELECT id, actions FROM limits WHERE alert_at <> ''").fetchall():
        share = min(action["share"] for action in json.loads(actions) if action["action"] == "warn")
        db.execute_sql(f"UPDATE limits SET alert_from = {int(share)} WHERE id = '{ident}'")
