"""The limits of keys, members, teams, provider keys, sessions and runs as rows of `limits`.

Their budgets stay as they are. A row has the id of its budget. Workers of the previous release change budgets without
these rows; a row whose amount is not that of its budget counts for nothing, so that they may serve meanwhile.
"""

import json
import time

import peewee

STATEMENTS = """
ALTER TABLE limits ADD COLUMN owner VARCHAR(40) NOT NULL DEFAULT '';
ALTER TABLE limits ADD COLUMN acts BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX limits_owner ON limits (owner) WHERE owner <> '';
CREATE INDEX limits_free ON limits (organization, name) WHERE owner = '' AND deleted_at IS NULL;
CREATE INDEX limits_acting ON limits (owner) WHERE acts
"""
COLUMNS = (
    "id, organization, name, owner, subjects, amount_nusd, limit_nusd, alert_at, period, actions, reservation, "
    "created_at, updated_at"
)
REFUSES = json.dumps([{"share": 100, "action": "refuse", "model": ""}])
OWNERS = {
    "key": "api_key x JOIN project p ON p.id = x.project_id",
    "member": "member x JOIN organization p ON p.id = x.organization_id",
    "team": "team x JOIN organization p ON p.id = x.organization_id",
    "provider_key": "provider_key x JOIN organization p ON p.id = x.organization_id",
    "project": "project x JOIN organization p ON p.id = x.organization_id",
}
DELETED = {"key": "x.status <> 'deleted'", "provider_key": "x.status <> 'deleted'"}
BUDGETS = """
INSERT INTO limits ({columns})
SELECT b.id, {organization}, b.id, x.id, {subjects}, b.limit_nusd, b.limit_nusd, b.alert_at,
    CASE WHEN b.kind = 'window' THEN b.period ELSE '' END, '{refuses}', b.reservation, {now}, {now}
FROM {table} JOIN budget b ON b.scope = '{kind}' AND b.scope_id = x.id AND b.kind IN ('total', 'window')
WHERE b.limit_nusd IS NOT NULL AND {place}
"""
SESSIONS = """
INSERT INTO limits ({columns})
SELECT x.id || ':{part}', {organization}, x.id || ':{part}', x.id, {subjects}, s.{part}_nusd, s.{part}_nusd, '',
    '', '{refuses}', '', {now}, {now}
FROM {table} JOIN session_budget s ON s.scope_id = x.id WHERE s.{part}_nusd IS NOT NULL AND {place}
"""


def up(migrator, db):
    statements = STATEMENTS
    if not isinstance(db, peewee.SqliteDatabase):
        statements = "ALTER TABLE limits ALTER COLUMN id TYPE VARCHAR(64);" + statements
    for statement in statements.split(";"):
        db.execute_sql(statement)
    for kind, table in OWNERS.items():
        common = {
            "columns": COLUMNS,
            "organization": "p.organization_id" if kind == "key" else "p.id",
            "refuses": REFUSES,
            "now": time.time_ns() // 1000,
            "table": table,
            "kind": kind,
            "place": DELETED.get(kind, "1 = 1"),
        }
        if kind != "project":
            db.execute_sql(BUDGETS.format(**common, subjects=subjects_of(kind)))
        if kind in ("key", "project"):
            for part in ("session", "run"):
                db.execute_sql(SESSIONS.format(**common, subjects=subjects_of(kind, part), part=part))


def subjects_of(kind, part=""):
    """Return the SQL expression of the subjects as JSON: the owner, and each session or run."""
    mark = "\0"
    subjects = [{"kind": kind, "value": mark, "name": "", "each": False}]
    if part:
        subjects.append({"kind": part, "value": "", "name": "", "each": True})
    before, after = json.dumps(subjects).split(json.dumps(mark)[1:-1])
    return f"'{before}' || x.id || '{after}'"
