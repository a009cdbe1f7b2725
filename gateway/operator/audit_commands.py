"""`audit`: the audit trail of changes."""

import click

from gateway.accounts import audit as accounts
from gateway.operator.installation_commands import check_scope, opened
from gateway.operator.output import AS_JSON, print_findings, print_table, show_time


@click.group()
def audit() -> None:
    """The audit trail."""


@audit.command("list")
@AS_JSON
@click.option("--organization", default="", help="Only changes of this organization.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Maximum number of entries."
)
@click.pass_context
def list_(ctx: click.Context, organization: str, limit: int) -> None:
    """List changes, newest first."""
    installation = ctx.with_resource(opened())
    check_scope(installation, organization)
    entries = accounts.list_entries(installation.database, organization, limit=limit)
    rows = [
        (entry.seq, show_time(entry.at_us), entry.actor, entry.action, entry.subject, entry.detail) for entry in entries
    ]
    print_table(("SEQ", "AT", "ACTOR", "ACTION", "SUBJECT", "DETAIL"), rows, "There are no changes yet.")


@audit.command()
@AS_JSON
@click.pass_context
def verify(ctx: click.Context) -> None:
    """Check that no entry was changed, added or removed; exit status 1 otherwise."""
    seen, problems = accounts.verify(ctx.with_resource(opened()).database)
    print_findings(problems, f"{seen} entries are unchanged and complete.", entries=seen)
    ctx.exit(1 if problems else 0)
