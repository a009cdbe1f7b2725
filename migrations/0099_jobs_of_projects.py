"""An index for the background responses of a project."""

INDEX = "CREATE INDEX response_job_project ON response_job (project, id)"


def up(migrator, db):
    db.execute_sql(INDEX)
