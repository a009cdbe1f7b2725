"""`discounts`: discounts on the list price for usage that credits pay."""

import click

from gateway.accounts.changes import OPERATOR
from gateway.accounts.discounts import EVERY, DiscountInfo, Discounts
from gateway.errors import InvalidRequest
from gateway.money import format_fraction, parse_fraction
from gateway.operator.installation_commands import Installation, check_scope, opened
from gateway.operator.output import AS_JSON, print_result, print_table, read_time, show_time

HEADER = ("ID", "ORGANIZATION", "PROVIDER", "MODEL", "FRACTION", "STARTS", "ENDS")


@click.group()
def discounts() -> None:
    """Discounts on the list price for usage that credits pay."""


@discounts.command("list")
@AS_JSON
@click.option("--organization", default="", help="Only discounts that apply to this organization.")
@click.pass_context
def list_(ctx: click.Context, organization: str) -> None:
    """List discounts; * means all."""
    installation = ctx.with_resource(opened())
    check_scope(installation, organization)
    found = _discounts(installation).list_discounts(organization)
    rows = [(one.id, *one.place, format_fraction(one.fraction_ppm), *_times(one)) for one in found]
    print_table(HEADER, rows, "There are no discounts.")


@discounts.command("set")
@AS_JSON
@click.argument("fraction")
@click.option("--organization", default=EVERY, help="Organization id; default: all organizations.")
@click.option("--provider", default=EVERY, help="Provider id; default: all providers.")
@click.option("--model", default=EVERY, help="Model id; default: all models.")
@click.option("--from", "start", help="Start: ISO date or time (default: UTC).")
@click.option("--to", "end", help="End: ISO date or time, exclusive.")
@click.pass_context
def set_(ctx: click.Context, fraction: str, start: str | None, end: str | None, **place: str) -> None:
    """Set a discount of FRACTION (0.2 is 20 %), replacing the one for the same organization, provider and model.

    Only the most specific discount applies: those of the organization first; then model and provider, model, provider,
    all.
    """
    begins = read_time(start) if start else None
    ends = read_time(end) if end else None
    wanted = DiscountInfo(place["organization"], place["provider"], place["model"], _read(fraction), begins, ends)
    installation = ctx.with_resource(opened())
    made = _discounts(installation).put(wanted, installation.catalogue, actor=OPERATOR)
    print_result(made.id, id=made.id)


@discounts.command()
@AS_JSON
@click.argument("discount_id")
@click.pass_context
def remove(ctx: click.Context, discount_id: str) -> None:
    """Remove a discount; past charges do not change."""
    _discounts(ctx.with_resource(opened())).remove(discount_id, actor=OPERATOR)
    print_result(f"{discount_id} was removed.", id=discount_id, removed=True)


def _discounts(installation: Installation) -> Discounts:
    return Discounts(installation.database, installation.control)


def _times(one: DiscountInfo) -> tuple[str, str]:
    return show_time(one.starts_us) if one.starts_us else "", show_time(one.ends_us) if one.ends_us else ""


def _read(text: str) -> int:
    try:
        return parse_fraction(text)
    except ValueError as error:
        raise InvalidRequest(f"A discount is a decimal fraction such as 0.2: {error}.") from None
