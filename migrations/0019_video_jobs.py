"""Video jobs, and what becomes of the callbacks that tell of their ends."""

STATEMENTS = """
CREATE TABLE video_job (
    id VARCHAR(64) NOT NULL PRIMARY KEY,
    organization VARCHAR(40) NOT NULL,
    project VARCHAR(40) NOT NULL,
    state VARCHAR(16) NOT NULL,
    progress INTEGER NOT NULL,
    model VARCHAR(255) NOT NULL,
    seconds INTEGER NOT NULL,
    size VARCHAR(32) NOT NULL,
    created_at BIGINT NOT NULL,
    completed_at BIGINT,
    expires_at BIGINT,
    due_at BIGINT,
    deadline_at BIGINT NOT NULL,
    failures INTEGER NOT NULL,
    wish TEXT NOT NULL,
    task TEXT NOT NULL,
    files TEXT NOT NULL,
    outcome TEXT NOT NULL
);
CREATE INDEX video_job_due ON video_job (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX video_job_project ON video_job (project, id);
CREATE INDEX video_job_completed ON video_job (completed_at) WHERE completed_at IS NOT NULL;
CREATE TABLE video_callback (
    id VARCHAR(80) NOT NULL PRIMARY KEY,
    job VARCHAR(64) NOT NULL,
    state VARCHAR(16) NOT NULL,
    due_at BIGINT,
    attempts TEXT NOT NULL
);
CREATE INDEX video_callback_due ON video_callback (due_at) WHERE due_at IS NOT NULL
"""


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
