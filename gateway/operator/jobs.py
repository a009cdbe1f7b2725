"""`jobs`: the recurring jobs of the installation, their last runs, and running one now. `rollups`: the hourly and daily
sums of usage that statistics read."""

import click

from gateway.clock import HOUR_US, MINUTE_US, to_iso
from gateway.errors import InvalidRequest
from gateway.operator.installation_commands import opened
from gateway.operator.output import AS_JSON, NEVER, print_result, print_table, read_time, show_time
from gateway.runtime.plurals import many, plural
from gateway.store.documents import Documents
from gateway.worker.recurring_jobs import JOB_TABLE, Scope, is_published, make_background, read_reports
from gateway.worker.wiring import build

RUNNERS = {
    Scope.WORKER: "every worker",
    Scope.NODE: "one worker of each node",
    Scope.INSTALLATION: "the leading worker",
}


@click.group()
def jobs() -> None:
    """Recurring jobs, which the gateway runs automatically."""


@jobs.command("list")
@AS_JSON
@click.pass_context
def list_(ctx: click.Context) -> None:
    """List the jobs with the workers that run them; for jobs of the installation also the result of the last run."""
    reports = read_reports(Documents(ctx.with_resource(opened()).database))
    rows = []
    for job in JOB_TABLE:
        report = reports.get(job.name)
        if report is not None:
            last_success = show_time(report.good_us or None)
            last = (show_time(report.at_us), f"{report.seconds:.2f} s", last_success, report.error)
        elif is_published(job):
            last = (NEVER, "", NEVER, "")
        else:
            last = ("not reported", "", "not reported", "")
        rows.append((job.name, RUNNERS[job.scope], f"{job.every_s:g} s", *last))
    header = ("JOB", "RUN BY", "EVERY", "LAST RUN", "TOOK", "LAST SUCCESS", "ERROR")
    print_table(header, rows, "There are no jobs.")


@jobs.command()
@AS_JSON
@click.argument("name")
@click.pass_context
def run(ctx: click.Context, name: str) -> None:
    """Run a job of a node or of the installation now, in addition to the scheduled runs."""
    services = build(ctx.with_resource(opened()).settings)
    ctx.call_on_close(services.close)
    try:
        report = make_background(services).run(name)
    finally:
        # Alerts of the job are noted in this process only, and would be lost with its end.
        services.telemetry.alerts.spread()
    print_result(f"{name} took {report.seconds:.2f} s.", job=name, seconds=round(report.seconds, 3))


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
    print_result(f"{many(count, 'hour')} {plural(count, 'was', 'were')} recomputed.", hours=count)


def _moment(request: str) -> str:
    """Return the minute in which the request with this id (hex) arrived."""
    at_us = int(request[:12] or "0", 16) * 1000
    if at_us:
        return to_iso(at_us // MINUTE_US * MINUTE_US)
    return "none"
