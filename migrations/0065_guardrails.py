"""Rules of guardrails, and what they found."""

STATEMENTS = """
CREATE TABLE guardrail_rule (
    id VARCHAR(40) NOT NULL PRIMARY KEY,
    organization_id VARCHAR(40) NOT NULL REFERENCES organization (id) ON DELETE RESTRICT,
    scope VARCHAR(16) NOT NULL,
    scope_id VARCHAR(40) NOT NULL,
    name VARCHAR(80) NOT NULL,
    action VARCHAR(16) NOT NULL,
    content TEXT NOT NULL,
    probation BOOLEAN NOT NULL DEFAULT FALSE,
    active BOOLEAN NOT NULL DEFAULT TRUE,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX guardrail_rule_organization ON guardrail_rule (organization_id);
CREATE TABLE guardrail_finding (
    request_id VARCHAR(32) NOT NULL,
    rule VARCHAR(40) NOT NULL,
    kind VARCHAR(40) NOT NULL,
    place VARCHAR(16) NOT NULL,
    organization VARCHAR(40) NOT NULL,
    project VARCHAR(40) NOT NULL,
    api_key VARCHAR(40) NOT NULL,
    action VARCHAR(16) NOT NULL,
    count BIGINT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (request_id, rule, kind, place)
);
CREATE INDEX guardrail_finding_organization ON guardrail_finding (organization, at);
CREATE INDEX guardrail_finding_at ON guardrail_finding (at)
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
