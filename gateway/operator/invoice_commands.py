"""`reconcile`: a provider's usage or cost export, compared with the usage rows."""

from pathlib import Path

import click

from gateway.errors import InvalidRequest
from gateway.money import format_usd, parse_usd
from gateway.operator.installation_commands import opened
from gateway.operator.output import AS_JSON, print_table
from gateway.reports.invoices import InvoiceDifference, compare_invoice, read_invoice

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
