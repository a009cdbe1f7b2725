"""`spend`: spending in a period, by project, key, model, day, team, person, attribute of people, provider, app, session
or tag. `reconcile`: a provider's usage or cost export, compared with the usage rows. `focus`: the charges of a month as
a FOCUS 1.2 file."""

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from gateway.accounts.keys import list_keys
from gateway.accounts.members import list_members
from gateway.accounts.organizations import list_organizations
from gateway.accounts.projects import list_projects
from gateway.accounts.teams import list_teams
from gateway.clock import DAY_US, to_iso
from gateway.errors import InvalidRequest
from gateway.metering.activity import Dimension, Owners, Span, measure
from gateway.metering.figures import ActivityFigures
from gateway.metering.rollups.queries import Row, at_once
from gateway.money import format_usd, parse_usd
from gateway.operator.installation_commands import Installation, check_scope, opened
from gateway.operator.output import AS_JSON, is_json, print_table, printable
from gateway.reports.focus import COLUMNS, read_charges, read_month
from gateway.reports.invoices import InvoiceDifference, compare_invoice, read_invoice
from gateway.reports.report_answers import METRIC_FIGURES
from gateway.reports.shares import GROUPS, ShareQuestion, forecast_month, read_held, read_shares
from gateway.reports.usage_reports import read_period
from gateway.surfaces.visitors import tabular as tabular_module
from gateway.surfaces.visitors.tabular import write_cell

HEADER = ("NAME", "REQUESTS", "ERRORS", "INPUT TOKENS", "OUTPUT TOKENS", "COST USD", "CREDITS USD", "OWN KEYS USD")
GROUPINGS = ("project", "day", *GROUPS)
NAMED_GROUPS = ("project", "key", "team", "person")  # groups with a name besides the id
FORECAST = ("MONTH", "SPENT USD", "DAILY USD", "EXPECTED USD")

Spent = list[tuple[str, str, ActivityFigures]]  # id, name, figures


@dataclass(frozen=True, slots=True)
class SpendQuery:
    """The projects and the period of a spending report."""

    installation: Installation
    projects: dict[str, str]  # id → name
    span: Callable[[str], Span]

    def ask(self, owners: Owners, dimension: Dimension, step: str = "all") -> list[Row]:
        """Return the rows of one series."""
        database = self.installation.report_database
        return at_once(database, partial(measure, database, owners, self.span(step), dimension, METRIC_FIGURES))


@click.command()
@click.option(
    "--by",
    type=click.Choice(GROUPINGS, case_sensitive=False),
    default="day",
    show_default=True,
    help="The group of each row.",
)
@click.option("--from", "start", metavar="DATE", help="First day in UTC; default: 29 days before --to.")
@click.option("--to", "end", metavar="DATE", help="Last day in UTC, inclusive; default: today.")
@click.option("--organization", default="", help="Only this organization.")
@click.option("--project", default="", help="Only this project.")
@click.option("--tag", default="", metavar="NAME", help="With --by tag: the name of the tag, such as team or user.")
@click.option("--forecast", is_flag=True, help="Show the expected cost of the current month instead.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a header line.")
@AS_JSON
@click.pass_context
def spend(
    ctx: click.Context,
    by: str,
    start: str | None,
    end: str | None,
    organization: str,
    project: str,
    tag: str,
    forecast: bool,
    as_csv: bool,
) -> None:
    """Show spending at billed prices: days in order, other groups by cost.

    COST is the total, CREDITS the part through the installation's provider keys, OWN KEYS the part through the
    organizations' own provider keys.
    """
    if as_csv and is_json():
        raise InvalidRequest("Give --csv or --json, not both.")
    installation = ctx.with_resource(opened())
    period = read_period(start, end, installation.clock.now_us())
    check_scope(installation, organization)
    infos = list_projects(installation.database, [organization] if organization else None)
    projects = {info.id: info.name for info in infos if project in ("", info.id)}
    if project and not projects:
        raise InvalidRequest(f"There is no project {project}.")
    installation.rollups.catch_up()
    if forecast:
        _print_forecast(installation, Owners(project_ids=tuple(projects)))
        return
    query = SpendQuery(installation, projects, period.span)
    rows = READERS[by](query) if by in READERS else _by_share(query, by, tag)
    if by != "day":
        rows.sort(key=lambda row: (-row[2].cost_nusd, row[0]))
    lines = [(*_names(by, ident, name), *_figures(figures)) for ident, name, figures in rows if figures.requests]
    header = ((by.upper(), "NAME") if by in NAMED_GROUPS else (by.upper(),)) + HEADER[1:]
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
    infos = list_keys(query.installation.database, project_ids=list(query.projects), deleted=True)
    names = {key.id: key.description for key in infos}
    spent = _summed(query.ask(Owners(key_ids=tuple(names)), "api_key"), _name_key)
    return [(ident, names[ident], figures) for ident, _, figures in spent]


def _by_share(query: SpendQuery, by: str, tag: str) -> Spent:
    if (by == "tag") != bool(tag):
        raise InvalidRequest("--by tag needs --tag NAME, and no other group has it.")
    database = query.installation.database
    names = {team.id: team.name for team in list_teams(database)}
    teams: dict[str, list[str]] = {}
    for team in list_teams(database):
        for member_id in team.member_ids:
            teams.setdefault(member_id, []).append(team.id)
    names |= {member.id: member.name or member.email for member in list_members(database, service_accounts=True)}
    keys = {key.id: key for key in list_keys(database, project_ids=list(query.projects), deleted=True)}
    owners = Owners(project_ids=tuple(query.projects))
    question = ShareQuestion(owners, query.span("all"), by, tag.lower(), keys, teams, read_held(database, keys, by))
    shares = read_shares(query.installation.report_database, question)
    return [(share.id, names.get(share.id, ""), share.figures) for share in shares]


def _print_forecast(installation: Installation, owners: Owners) -> None:
    expected = forecast_month(installation.report_database, owners, installation.clock.now_us())
    amounts = (expected.spent_nusd, expected.daily_nusd, expected.expected_nusd)
    print_table(FORECAST, [(expected.month.name, *map(format_usd, amounts))], "")


def _by_day(query: SpendQuery) -> Spent:
    rows = query.ask(Owners(project_ids=tuple(query.projects)), "total", "day")
    return sorted(_summed(rows, _name_day))


def _name_key(row: Row) -> str:
    return f"key_{row.value[0].hex()}"


def _name_day(row: Row) -> str:
    return to_iso(row.step * DAY_US)[:10]


READERS: dict[str, Callable[[SpendQuery], Spent]] = {
    "project": _by_project,
    "key": _by_key,
    "day": _by_day,
}


def _summed(rows: list[Row], name: Callable[[Row], str]) -> Spent:
    sums: dict[str, ActivityFigures] = {}
    for row in rows:
        sums.setdefault(name(row), ActivityFigures()).add(row.figures)
    return [(ident, "", figures) for ident, figures in sums.items()]


def _total(rows: list[Row]) -> ActivityFigures:
    summed = ActivityFigures()
    for row in rows:
        summed.add(row.figures)
    return summed


def _names(by: str, ident: str, name: str) -> tuple[str, ...]:
    if by in NAMED_GROUPS:
        return (ident, name)
    return (ident,)


def _figures(figures: ActivityFigures) -> tuple[Any, ...]:
    nusd = (figures.cost_nusd, figures.cost_nusd - figures.byok_nusd, figures.byok_nusd)
    counts = (figures.requests, figures.errors, figures.input_tokens, figures.output_tokens)
    return (*counts, *(format_usd(amount) for amount in nusd))


def _write_csv(header: tuple[str, ...], lines: list[tuple[Any, ...]]) -> None:
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow([name.lower().replace(" ", "_") for name in header])
    writer.writerows([printable(write_cell(value), keep="") for value in line] for line in lines)
    click.echo(target.getvalue(), nl=False)


@click.command()
@click.argument("month")
@click.option("--organization", default="", help="Required if there are several organizations.")
@AS_JSON
@click.pass_context
def focus(ctx: click.Context, month: str, organization: str) -> None:
    """Print the charges of MONTH (2026-11, in UTC) as FOCUS 1.2 in CSV: one row for each charge. --json prints a JSON
    object a line.

    The sum of BilledCost is what the ledger took from the organization's credits in that month.
    """
    installation = ctx.with_resource(opened())
    check_scope(installation, organization)
    known = [info.id for info in list_organizations(installation.database)]
    if not organization and len(known) != 1:
        raise InvalidRequest("There are several organizations: choose one with --organization.")
    charges = read_charges(installation.database, organization or known[0], read_month(month))
    form = tabular_module.JSON_LINES if is_json() else tabular_module.CSV
    for piece in tabular_module.write_rows(charges, COLUMNS, form):
        click.echo(piece, nl=False)


INVOICE_HEADER = ("DAY", "MODEL", "FIGURE", "INVOICED", "RECORDED", "DIFFERENCE")


@click.command()
@click.option(
    "--invoice", "path", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A usage or cost export, as CSV or JSON.",
)  # fmt: skip
@click.option("--tolerance", default="0.01", show_default=True, help="US dollars a day that costs may differ by.")
@AS_JSON
@click.pass_context
def reconcile(ctx: click.Context, path: Path, tolerance: str) -> None:
    """Compare a provider's export with the usage rows of calls with the installation's own provider key.

    Prints the days and models with other tokens or costs (at list price), and ends with status 1 if there are any.
    """
    try:
        tolerance_nusd = parse_usd(tolerance)
    except ValueError as error:
        raise InvalidRequest("--tolerance is an amount in US dollars, such as 0.01.") from error
    installation = ctx.with_resource(opened())
    invoice = read_invoice(path.read_bytes())
    differences = compare_invoice(installation.database, installation.catalogue, invoice, tolerance_nusd)
    agree = f"The export and the usage rows of {invoice.provider} agree."
    print_table(INVOICE_HEADER, [_line(difference) for difference in differences], agree)
    if differences:
        ctx.exit(1)


def _line(difference: InvoiceDifference) -> tuple[str, ...]:
    show = format_usd if difference.figure == "cost" else str
    amounts = (difference.invoiced, difference.recorded, difference.invoiced - difference.recorded)
    return (difference.day, difference.model, difference.figure, *map(show, amounts))
