"""Saved views that are sent each week, by mail to a person or to an address for alerts."""

STATEMENTS = """
CREATE TABLE view_subscription (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    view_id VARCHAR(40) NOT NULL REFERENCES saved_view (id) ON DELETE CASCADE,
    organization_id VARCHAR(40) NOT NULL REFERENCES organization (id) ON DELETE CASCADE,
    user_id VARCHAR(40) NOT NULL,
    hook_id VARCHAR(40) REFERENCES alert_hook (id) ON DELETE CASCADE,
    weekday SMALLINT NOT NULL,
    hour SMALLINT NOT NULL,
    timezone VARCHAR(64) NOT NULL,
    next_at BIGINT NOT NULL,
    sent_at BIGINT NOT NULL DEFAULT 0,
    problem VARCHAR(400) NOT NULL DEFAULT '',
    created_at BIGINT NOT NULL
);
CREATE INDEX view_subscription_due ON view_subscription (next_at);
CREATE INDEX view_subscription_view ON view_subscription (view_id);
CREATE INDEX view_subscription_owner ON view_subscription (organization_id, user_id);
CREATE INDEX view_subscription_hook ON view_subscription (hook_id)
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
