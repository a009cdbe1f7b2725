"""`doctor` and `re-rate`: whether the books agree, and what a period would have cost."""

import click

from gateway.accounts.discounts import Discounts
from gateway.billing import rerating
from gateway.billing.reconciliation import doctor as examine
from gateway.billing.rerating import Report
from gateway.errors import InvalidRequest
from gateway.money import format_usd
from gateway.operator.installation_commands import opened
from gateway.operator.output import AS_JSON, is_json, print_json, print_table, read_time, say
from gateway.operator.same_gateway import FORCE, check_same
from gateway.store.installation_identity import key_beside_data


@click.command()
@AS_JSON
@FORCE
@click.pass_context
def doctor(ctx: click.Context, force: bool) -> int:
    """Sum up what is new, close the hours that are over, then compare ledger, balances, counters, leases, usage rows
    and rollups; status 1 on any difference."""
    installation = ctx.with_resource(opened())
    check_same(installation, force)
    beside = key_beside_data(installation.settings)
    if beside is not None:
        click.echo(
            f"A backup of the data folder holds both the encrypted data and its key ({beside}): keep the key elsewhere "
            "and name it with GATEWAY_ENCRYPTION_KEY_FILE.",
            err=True,
        )
    installation.rollups.catch_up()
    installation.hours.close()
    differences = examine(installation.database)
    if is_json():
        print_json({"agree": not differences, "differences": differences})
        if differences:
            return 1
        return 0
    for line in differences:
        click.echo(line)
    click.echo(f"{len(differences)} differences." if differences else "The books agree.")
    if differences:
        return 1
    return 0


@click.command("re-rate")
@AS_JSON
@click.option("--from", "start", required=True, help="ISO date or time (UTC unless it says otherwise), included.")
@click.option("--to", "end", required=True, help="ISO date or time, not included.")
@click.option(
    "--prices",
    type=click.Choice(["then", "now"]),
    default="then",
    show_default=True,
    help="The prices of each request's time, or those of now.",
)
@FORCE
@click.option("--post", is_flag=True, help="Post the differences to the credits; once for each period and catalogue.")
@click.pass_context
def re_rate(ctx: click.Context, start: str, end: str, prices: str, post: bool, force: bool) -> None:
    """Price the usage of a period again and report the difference; writes nothing without --post.

    With prices of then discounts count as they were billed, with those of now as they are in force now.
    """
    from_us = read_time(start)
    to_us = read_time(end)
    if to_us <= from_us:
        raise InvalidRequest("--to must be later than --from.")
    installation = ctx.with_resource(opened())
    check_same(installation, force)
    catalogue = installation.catalogue
    if prices == "now":
        now_us = installation.database.now_us()
    else:
        now_us = None
    discounts = Discounts(installation.database, installation.control)
    report = rerating.rerate(installation.database, catalogue, from_us, to_us, now_us=now_us, discounts=discounts)
    _print(report)
    if not post:
        return
    reference = f"{from_us}:{to_us}:{prices}:{catalogue.version[:16]}"
    posted = rerating.post(installation.ledger, report, reference)
    for organization, nusd in posted.items():
        say(f"Posted {format_usd(nusd)} USD to {organization}.")
    if not posted:
        say("Nothing was left to post.")


def _print(report: Report) -> None:
    rows = [
        (
            place.organization,
            place.mapping,
            "credits" if place.billed else "own key",
            line.rows,
            *(format_usd(nusd) for nusd in (line.recorded_nusd, line.rated_nusd, line.difference_nusd)),
        )
        for place, line in sorted(report.lines.items())
    ]
    header = ("ORGANIZATION", "SERVED BY", "PAID BY", "ROWS", "BILLED", "PRICED AGAIN", "DIFFERENCE")
    print_table(header, rows, "There is no usage to price again.")
    for reason, count in sorted(report.left.items()):
        say(f"{count} rows stay as they are: {reason}.")
