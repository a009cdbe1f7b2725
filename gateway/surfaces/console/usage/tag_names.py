"""The names of tags in the latest requests, for a choice."""

from collections.abc import Sequence
from functools import partial

import orjson

from gateway.metering.usage_table import raw_id
from gateway.store.database import Database

PROJECTS = 20
LATEST = 500  # rows of each project in which names of tags are searched


def list_tags(database: Database, project_ids: Sequence[str]) -> list[str]:
    """Return the names of tags in the latest requests of the projects."""
    rows = database.report(partial(_latest_tags, database, project_ids[:PROJECTS]))
    return sorted({name for row in rows for name in orjson.loads(row)})


def _latest_tags(database: Database, projects: Sequence[str]) -> list[str]:
    sql = "SELECT tags FROM usage WHERE project = ? ORDER BY request DESC LIMIT ?"
    rows = [row for project in projects for row in database.fetch(sql, (raw_id(project), LATEST))]
    return [row[0] for row in rows if row[0]]
