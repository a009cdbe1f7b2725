"""Usage by tag or session over time, in the form of the usage report."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import orjson

from gateway.metering.usage_table import raw_id
from gateway.reports.shares import ShareQuestion, read_share_steps, read_top_values
from gateway.store.database import Database
from gateway.surfaces.report_windows import ReportRange, read_window
from gateway.surfaces.usage_report import SHORT, ActivityQuery, owners_of, usage_of, write_short
from gateway.surfaces.validation_schemas import read_fields
from gateway.surfaces.visitor import Visitor

PARTS = "tagBreakdown"
SHOWN = 100  # values with the highest cost; the others are one part
PROJECTS = 20
LATEST = 500  # rows of each project in which names of tags are searched


def read_tag_steps(visitor: Visitor, chosen: dict[str, str], group: str, tag: str) -> list[dict[str, Any]]:
    """Return the hours or days of a period in the form of the usage report, each with its parts by `group` ("session",
    or "tag" with the name `tag`)."""
    window = _read_window(visitor, chosen)
    question = ShareQuestion(owners_of(visitor, chosen.get("projectId")), window.span, group, tag)
    shown = read_top_values(visitor.services.store.database, question, SHOWN)
    steps: list[dict[str, Any]] = usage_of(visitor, chosen, broken_down=False)["activity"]
    return _add_parts(visitor, steps, window, question, shown)


def read_tag_sums_before(
    visitor: Visitor, chosen: dict[str, str], tag: str, values: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the sums of the period before in the form of the usage report, in at most one step, with those of these
    values of a tag."""
    window = _read_window(visitor, chosen).before()
    question = ShareQuestion(owners_of(visitor, chosen.get("projectId")), window.span, "tag", tag)
    steps: list[dict[str, Any]] = usage_of(visitor, chosen, broken_down=False, earlier=True)["activity"]
    return _add_parts(visitor, steps, window, question, values)


def _read_window(visitor: Visitor, chosen: dict[str, str]) -> ReportRange:
    return read_window(read_fields(ActivityQuery, chosen), visitor.services.clock.now_us())


def _add_parts(
    visitor: Visitor, steps: list[dict[str, Any]], window: ReportRange, question: ShareQuestion, values: Sequence[str]
) -> list[dict[str, Any]]:
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in read_share_steps(visitor.services.store.database, question, values, SHORT):
        part = {"id": row.id, "tag": question.tag, **write_short(row.figures)}
        parts.setdefault(window.label(row.step), []).append(part)
    return [{**step, PARTS: parts.get(step["date"], [])} for step in steps]


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
