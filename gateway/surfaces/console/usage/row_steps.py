"""Usage by tag or session over time, which is summed from usage rows: both have too many values for statistics."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import orjson

from gateway.clock import DAY_US, HOUR_US
from gateway.metering.activity import Span
from gateway.metering.usage_table import raw_id
from gateway.reports.shares import OTHER, ShareQuestion, read_share_steps, read_shares
from gateway.store.database import Database
from gateway.surfaces.report_windows import read_window
from gateway.surfaces.usage_report import ActivityQuery, owners_of, usage_of, write_short
from gateway.surfaces.validation_schemas import read_fields
from gateway.surfaces.visitor import Visitor

PARTS = "rowBreakdown"
SHOWN = 100  # values with the highest cost; the others are one part
PROJECTS = 20
LATEST = 500  # rows of each project in which names of tags are searched
REST = ("requestCount", "inputTokens", "outputTokens", "totalTokens", "cost", "discountSavings")


def read_row_steps(visitor: Visitor, chosen: dict[str, str], group: str, tag: str) -> list[dict[str, Any]]:
    """Return the hours or days of a period in the form of the usage report, each with its parts by `group` ("session",
    or "tag" with the name `tag`)."""
    steps: list[dict[str, Any]] = usage_of(visitor, chosen)["activity"]
    given = read_fields(ActivityQuery, chosen)
    window = read_window(given, visitor.services.clock.now_us())
    database = visitor.services.store.database
    owners = owners_of(visitor, given.get("projectId"))
    question = ShareQuestion(owners, Span(window.span.first, window.span.end, "all"), group, tag)
    values = [share.id for share in read_shares(database, question)[:SHOWN] if share.id != OTHER]
    size = DAY_US if window.span.step == "day" else HOUR_US
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in read_share_steps(database, question, values, size):
        part = {"id": row.id, "tag": tag, **write_short(row.figures)}
        parts.setdefault(window.label(row.step), []).append(part)
    return [{**step, PARTS: _with_rest(step, parts.get(step["date"], []), tag)} for step in steps]


def list_tags(visitor: Visitor, project_id: str | None) -> list[str]:
    """Return the names of tags in the latest requests of the projects that the visitor may see, for a choice."""
    database = visitor.services.store.database
    projects = owners_of(visitor, project_id).project_ids[:PROJECTS]
    rows = database.report(partial(_latest_tags, database, projects))
    return sorted({name for row in rows for name in orjson.loads(row)})


def _latest_tags(database: Database, projects: Sequence[str]) -> list[str]:
    sql = "SELECT tags FROM usage WHERE project = ? ORDER BY request DESC LIMIT ?"
    rows = [row for project in projects for row in database.fetch(sql, (raw_id(project), LATEST))]
    return [row[0] for row in rows if row[0]]


def _with_rest(step: dict[str, Any], parts: Sequence[dict[str, Any]], tag: str) -> list[dict[str, Any]]:
    """Return the parts, and the usage of all further values. Statistics may lag behind the rows."""
    rest = {name: step.get(name, 0) - sum(part[name] for part in parts) for name in REST}
    if rest["requestCount"] > 0 or rest["cost"] > 1e-9:
        return [*parts, {"id": OTHER, "tag": tag, **{name: max(0, value) for name, value in rest.items()}}]
    return list(parts)
