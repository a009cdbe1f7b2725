"""`focus`: the charges of a month as a FOCUS 1.2 file."""

import click

from gateway.accounts.organizations import list_organizations
from gateway.errors import InvalidRequest
from gateway.operator.installation_commands import check_scope, opened
from gateway.operator.output import AS_JSON, is_json
from gateway.reports.focus import COLUMNS, read_charges, read_month
from gateway.surfaces import tabular


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
    form = tabular.JSON_LINES if is_json() else tabular.CSV
    for piece in tabular.write_rows(charges, COLUMNS, form):
        click.echo(piece, nl=False)
