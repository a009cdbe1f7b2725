"""`rollups`: the hourly and daily sums of usage that statistics read."""

import click

from gateway.clock import HOUR_US, MINUTE_US, to_iso
from gateway.errors import InvalidRequest
from gateway.operator.installation_commands import opened
from gateway.operator.output import AS_JSON, print_result, print_table, read_time


@click.group()
def rollups() -> None:
    """Sums of usage by hour and day. The gateway updates them automatically; `doctor` verifies them."""


@rollups.command()
@AS_JSON
@click.pass_context
def status(ctx: click.Context) -> None:
    """Show up to when usage is summed, and what is left to do."""
    installation = ctx.with_resource(opened())
    state = installation.rollups.state()
    if state is None:
        print_table(
            ("WHAT", "IS"),
            [],
            "Nothing is summed yet: no gateway has run on this database since the migration that added rollups.",
        )
        return
    older = "are being summed" if state.filling else "are summed"
    rows = [
        ("current up to", to_iso(state.watermark)),
        ("older rows", older),
        ("days are summed before", to_iso(state.days_through * 24 * HOUR_US)[:10]),
        ("rows are deleted for requests before", _moment(state.purged)),
    ]
    print_table(("WHAT", "IS"), rows, "")


@rollups.command()
@AS_JSON
@click.option("--from", "start", required=True, help="Start: ISO date or time (default: UTC), inclusive.")
@click.option("--to", "end", required=True, help="End: ISO date or time, exclusive.")
@click.pass_context
def rebuild(ctx: click.Context, start: str, end: str) -> None:
    """Recompute the hours of a period from the remaining usage rows and the saved sums of deleted rows.

    Safe while gateways run, and safe to repeat.
    """
    from_us = read_time(start)
    to_us = read_time(end)
    if to_us <= from_us:
        raise InvalidRequest("--to must be later than --from.")
    installation = ctx.with_resource(opened())
    first = from_us // HOUR_US
    last = (to_us - 1) // HOUR_US
    count = installation.rollups.rebuild(first, last)
    print_result(f"{count} hours were recomputed.", hours=count)


def _moment(request: str) -> str:
    """Return the minute in which the request with this id (hex) arrived."""
    at_us = int(request[:12] or "0", 16) * 1000
    if at_us:
        return to_iso(at_us // MINUTE_US * MINUTE_US)
    return "none"
