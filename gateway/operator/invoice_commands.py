"""`reconcile`: a provider's usage or cost export, compared with the usage rows."""

from pathlib import Path

import click

from gateway.accounts.organizations import list_organizations
from gateway.errors import InvalidRequest
from gateway.money import format_usd, parse_usd
from gateway.operator.installation_commands import check_scope, opened
from gateway.operator.output import AS_JSON, is_json, print_table
from gateway.reports.focus import COLUMNS, read_charges, read_month
from gateway.reports.invoices import InvoiceDifference, compare_invoice, read_invoice
from gateway.surfaces.visitors import tabular as tabular_module

# `focus`: the charges of a month as a FOCUS 1.2 file.


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


HEADER = ("DAY", "MODEL", "FIGURE", "INVOICED", "RECORDED", "DIFFERENCE")


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
    print_table(HEADER, [_line(difference) for difference in differences], agree)
    if differences:
        ctx.exit(1)


def _line(difference: InvoiceDifference) -> tuple[str, ...]:
    show = format_usd if difference.figure == "cost" else str
    amounts = (difference.invoiced, difference.recorded, difference.invoiced - difference.recorded)
    return (difference.day, difference.model, difference.figure, *map(show, amounts))
