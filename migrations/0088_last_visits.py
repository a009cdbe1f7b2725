"""When people last looked at the overview of an organization, and when they did the time before."""

STATEMENTS = """
CREATE TABLE last_visit (
    user_id VARCHAR(40) NOT NULL,
    organization_id VARCHAR(40) NOT NULL REFERENCES organization (id) ON DELETE CASCADE,
    seen_at BIGINT NOT NULL,
    before_at BIGINT NOT NULL,
    PRIMARY KEY (user_id, organization_id)
)
"""


def up(migrator, db):
    db.execute_sql(STATEMENTS)
