"""The teams that paid for a request, in its usage row.

`group_usage` keeps the rows of earlier requests, and those of sessions and runs. The former release, which may serve
beside this one, reads, writes and deletes through the view `team_usage`.
"""

import peewee

# The place of each team in the column, which has 16 bytes for a team. A function is bound to the table by its name,
# while a view would keep a table from being dropped that becomes a partition.
POSTGRESQL = (
    "ALTER TABLE usage ADD COLUMN teams BYTEA",
    "ALTER TABLE team_usage RENAME TO group_usage",
    """CREATE FUNCTION teams_of_usage() RETURNS TABLE (request BYTEA, attempt SMALLINT, kind SMALLINT, team BYTEA) AS $$
    SELECT u.request, u.attempt, u.kind, substr(u.teams, 16 * place + 1, 16)
    FROM usage u, generate_series(0, length(u.teams) / 16 - 1) place
    WHERE u.teams IS NOT NULL $$ LANGUAGE sql STABLE""",
    """CREATE VIEW team_usage AS SELECT request, attempt, kind, team FROM group_usage
    UNION ALL SELECT request, attempt, kind, team FROM teams_of_usage()""",
    """CREATE FUNCTION change_team_usage() RETURNS trigger AS $$ BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO group_usage (request, attempt, kind, team) VALUES (NEW.request, NEW.attempt, NEW.kind, NEW.team);
        RETURN NEW;
    END IF;
    DELETE FROM group_usage g WHERE g.request = OLD.request AND g.attempt = OLD.attempt AND g.kind = OLD.kind
        AND g.team = OLD.team;
    RETURN OLD;
    END $$ LANGUAGE plpgsql""",
    """CREATE TRIGGER team_usage_change INSTEAD OF INSERT OR DELETE ON team_usage
    FOR EACH ROW EXECUTE FUNCTION change_team_usage()""",
)
SQLITE = (
    "ALTER TABLE usage ADD COLUMN teams BLOB",
    "ALTER TABLE team_usage RENAME TO group_usage",
    """CREATE VIEW team_usage AS SELECT request, attempt, kind, team FROM group_usage
    UNION ALL SELECT u.request, u.attempt, u.kind, substr(u.teams, 16 * place.key + 1, 16)
    FROM usage u, json_each('[0' || replace(hex(zeroblob(length(u.teams) / 16 - 1)), '00', ',0') || ']') place
    WHERE u.teams IS NOT NULL""",
    """CREATE TRIGGER team_usage_insert INSTEAD OF INSERT ON team_usage BEGIN
    INSERT INTO group_usage (request, attempt, kind, team) VALUES (NEW.request, NEW.attempt, NEW.kind, NEW.team);
    END""",
    """CREATE TRIGGER team_usage_delete INSTEAD OF DELETE ON team_usage BEGIN
    DELETE FROM group_usage WHERE request = OLD.request AND attempt = OLD.attempt AND kind = OLD.kind
        AND team = OLD.team; END""",
)


def up(migrator, db):
    for statement in SQLITE if isinstance(db, peewee.SqliteDatabase) else POSTGRESQL:
        db.execute_sql(statement)
