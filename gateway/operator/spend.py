"""`spend`: spending in a period, by project, key, model or day."""

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from gateway.accounts.keys import list_keys
from gateway.accounts.projects import list_projects
from gateway.clock import DAY_US, to_iso
from gateway.errors import InvalidRequest
from gateway.metering.activity import Dimension, Owners, Span, measure
from gateway.metering.figures import ActivityFigures
from gateway.metering.rollups.queries import Row, at_once
from gateway.money import format_usd
from gateway.operator.installation_commands import Installation, check_scope, opened
from gateway.operator.output import AS_JSON, is_json, print_table, printable
from gateway.reports.period import read_period
from gateway.reports.report_metrics import NEEDED
from gateway.surfaces.tabular import write_cell

HEADER = ("NAME", "REQUESTS", "ERRORS", "INPUT TOKENS", "OUTPUT TOKENS", "COST USD", "CREDITS USD", "OWN KEYS USD")
BY = ("project", "key", "model", "day")

Spent = list[tuple[str, str, ActivityFigures]]  # id, name, figures


@dataclass(frozen=True, slots=True)
class SpendQuery:
    """The projects and the period of a spending report."""

    installation: Installation
    projects: dict[str, str]  # id → name
    span: Callable[[str], Span]

    def ask(self, owners: Owners, dimension: Dimension, step: str = "all") -> list[Row]:
        """Return the rows of one series."""
        database = self.installation.database
        return at_once(database, partial(measure, database, owners, self.span(step), dimension, NEEDED))


@click.command()
@click.option("--by", type=click.Choice(BY), default="day", show_default=True, help="The group of each row.")
@click.option("--from", "start", metavar="DATE", help="First day in UTC; default: 29 days before --to.")
@click.option("--to", "end", metavar="DATE", help="Last day in UTC, inclusive; default: today.")
@click.option("--organization", default="", help="Only this organization.")
@click.option("--project", default="", help="Only this project.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a header line.")
@AS_JSON
@click.pass_context
def spend(
    ctx: click.Context, by: str, start: str | None, end: str | None, organization: str, project: str, as_csv: bool
) -> None:
    """Show spending at billed prices: days in order, other groups by cost.

    COST is the total, CREDITS the part through the installation's provider keys, OWN KEYS the part through the
    organizations' own provider keys.
    """
    if as_csv and is_json():
        raise InvalidRequest("Choose one of --csv and --json.")
    installation = ctx.with_resource(opened())
    period = read_period(start, end, installation.clock.now_us())
    check_scope(installation, organization)
    found = list_projects(installation.database, [organization] if organization else None)
    projects = {one.id: one.name for one in found if project in ("", one.id)}
    if project and not projects:
        raise InvalidRequest(f"There is no project {project}.")
    installation.rollups.catch_up()
    rows = READERS[by](SpendQuery(installation, projects, period.span))
    if by != "day":
        rows.sort(key=lambda row: (-row[2].cost_nusd, row[0]))
    lines = [(*_names(by, ident, name), *_figures(figures)) for ident, name, figures in rows if figures.requests]
    header = ((by.upper(),) if by in ("model", "day") else (by.upper(), "NAME")) + HEADER[1:]
    if as_csv:
        _write_csv(header, lines)
    else:
        print_table(header, lines, f"There was no spending from {period.first} to {period.last}.")


def _by_project(query: SpendQuery) -> Spent:
    return [
        (ident, name, _total(query.ask(Owners(project_ids=(ident,)), "total")))
        for ident, name in query.projects.items()
    ]


def _by_key(query: SpendQuery) -> Spent:
    found = list_keys(query.installation.database, project_ids=list(query.projects), deleted=True)
    names = {key.id: key.description for key in found}
    spent = _summed(query.ask(Owners(key_ids=tuple(names)), "api_key"), lambda row: f"key_{row.value[0].hex()}")
    return [(ident, names[ident], figures) for ident, _, figures in spent]


def _by_model(query: SpendQuery) -> Spent:
    rows = query.ask(Owners(project_ids=tuple(query.projects)), "model")
    return _summed(rows, lambda row: f"{row.value[1]}/{row.value[0]}")


def _by_day(query: SpendQuery) -> Spent:
    rows = query.ask(Owners(project_ids=tuple(query.projects)), "total", "day")
    return sorted(_summed(rows, lambda row: to_iso(row.step * DAY_US)[:10]))


READERS: dict[str, Callable[[SpendQuery], Spent]] = {
    "project": _by_project,
    "key": _by_key,
    "model": _by_model,
    "day": _by_day,
}


def _summed(rows: list[Row], name: Callable[[Row], str]) -> Spent:
    found: dict[str, ActivityFigures] = {}
    for row in rows:
        found.setdefault(name(row), ActivityFigures()).add(row.figures)
    return [(ident, "", figures) for ident, figures in found.items()]


def _total(rows: list[Row]) -> ActivityFigures:
    summed = ActivityFigures()
    for row in rows:
        summed.add(row.figures)
    return summed


def _names(by: str, ident: str, name: str) -> tuple[str, ...]:
    if by in ("model", "day"):
        return (ident,)
    return (ident, name)


def _figures(figures: ActivityFigures) -> tuple[Any, ...]:
    nusd = (figures.cost_nusd, figures.cost_nusd - figures.byok_nusd, figures.byok_nusd)
    counts = (figures.requests, figures.errors, figures.input_tokens, figures.output_tokens)
    return (*counts, *(format_usd(one) for one in nusd))


def _write_csv(header: tuple[str, ...], lines: list[tuple[Any, ...]]) -> None:
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow([name.lower().replace(" ", "_") for name in header])
    writer.writerows([printable(write_cell(value), keep="") for value in line] for line in lines)
    click.echo(target.getvalue(), nl=False)
