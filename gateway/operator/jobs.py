"""`jobs`: the recurring jobs of the installation, their last runs, and running one now."""

import click

from gateway.operator.installation_commands import opened
from gateway.operator.output import AS_JSON, NEVER, print_result, print_table, show_time
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
    report = make_background(services).run(name)
    print_result(f"{name} took {report.seconds:.2f} s.", job=name, seconds=round(report.seconds, 3))
