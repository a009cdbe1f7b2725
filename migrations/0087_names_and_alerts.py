"""Sums of usage by operation and error: what removed rows contributed to them, and which release last changed the
sums. Past alerts, for the marks on plots."""

STATEMENTS = """
ALTER TABLE removed_piece ADD COLUMN operation VARCHAR(24);
ALTER TABLE removed_piece ADD COLUMN error VARCHAR(64);
ALTER TABLE rollup_state ADD COLUMN named BIGINT NOT NULL DEFAULT 0;
ALTER TABLE rollup_state ADD COLUMN named_until BIGINT NOT NULL DEFAULT 0;
CREATE TABLE past_alert (
    id VARCHAR(32) NOT NULL PRIMARY KEY,
    organization VARCHAR(40) NOT NULL,
    event VARCHAR(40) NOT NULL,
    subject TEXT NOT NULL,
    message TEXT NOT NULL,
    facts TEXT NOT NULL,
    began_at BIGINT NOT NULL,
    ended_at BIGINT NOT NULL
);
CREATE INDEX past_alert_organization ON past_alert (organization, began_at);
CREATE INDEX past_alert_began ON past_alert (began_at)
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
