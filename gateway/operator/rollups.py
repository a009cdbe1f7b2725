"""`rollups`: the sums of usage that statistics read."""

import click

from gateway.clock import HOUR_US, MINUTE_US, to_iso
from gateway.errors import InvalidRequest
from gateway.operator.installation_commands import opened
from gateway.operator.output import AS_JSON, print_result, print_table, read_time


@click.group()
def rollups() -> None:
    """Sums of usage by hour and day. The gateway keeps them current by itself; `doctor` proves them."""


@rollups.command()
@AS_JSON
@click.pass_context
def status(ctx: click.Context) -> None:
    """Up to when usage is summed up, and what is left to do."""
    installation = ctx.with_resource(opened())
    state = installation.rollups.state()
    if state is None:
        print_table(
            ("WHAT", "IS"), [], "Nothing is summed up yet: no gateway has run on this database since it has rollups."
        )
        return
    rows = [
        ("current up to", to_iso(state.watermark)),
        ("rows of before", "are being counted" if state.filling else "are counted"),
        ("days are made before", to_iso(state.days_through * 24 * HOUR_US)[:10]),
        ("rows are removed of requests before", _moment(state.purged)),
    ]
    print_table(("WHAT", "IS"), rows, "")


@rollups.command()
@AS_JSON
@click.option("--from", "start", required=True, help="ISO date or time (UTC unless it says otherwise), included.")
@click.option("--to", "end", required=True, help="ISO date or time, not included.")
@click.pass_context
def rebuild(ctx: click.Context, start: str, end: str) -> None:
    """Compute the hours of a period anew, from the usage rows that are left and what those told that were removed.

    Safe beside running gateways and safe to repeat; nothing is needed for it but a reason to distrust the sums."""
    from_us = read_time(start)
    to_us = read_time(end)
    if to_us <= from_us:
        raise InvalidRequest("--to must be later than --from.")
    installation = ctx.with_resource(opened())
    first = from_us // HOUR_US
    last = (to_us - 1) // HOUR_US
    count = installation.rollups.rebuild(first, last)
    print_result(f"{count} hours were computed anew.", hours=count)


def _moment(request: str) -> str:
    """When a request of this id (hex) came in; no minute of it is of use to anybody."""
    at_us = int(request[:12] or "0", 16) * 1000
    if at_us:
        return to_iso(at_us // MINUTE_US * MINUTE_US)
    return "none"
