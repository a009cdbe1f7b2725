"""`organizations`: making, listing, blocking, and the compliance policy."""

import json

import click

from gateway.accounts import organizations as accounts
from gateway.accounts.changes import OPERATOR
from gateway.operator.installation import opened
from gateway.operator.output import print_table, read_object, show_time


@click.group()
def organizations() -> None:
    """Organizations and their compliance policy."""


@organizations.command("list")
@click.pass_context
def list_(ctx: click.Context) -> None:
    """List organizations, oldest first."""
    found = accounts.list_organizations(ctx.with_resource(opened()).database)
    rows = [(one.id, one.status, show_time(one.created_at_us), one.name) for one in found]
    print_table(("ID", "STATUS", "CREATED", "NAME"), rows, "There are no organizations.")


@organizations.command()
@click.argument("name")
@click.pass_context
def create(ctx: click.Context, name: str) -> None:
    """Make an organization; add its owner with `members add`."""
    installation = ctx.with_resource(opened())
    made = accounts.create_organization(installation.database, installation.control, name, actor=OPERATOR)
    click.echo(made.id)


@organizations.command()
@click.argument("organization_id")
@click.pass_context
def block(ctx: click.Context, organization_id: str) -> None:
    """Refuse all keys of an organization."""
    _set_status(ctx, organization_id, "blocked")


@organizations.command()
@click.argument("organization_id")
@click.pass_context
def unblock(ctx: click.Context, organization_id: str) -> None:
    """Let a blocked organization in again."""
    _set_status(ctx, organization_id, "active")


@organizations.command("rename")
@click.argument("organization_id")
@click.argument("name")
@click.pass_context
def rename(ctx: click.Context, organization_id: str, name: str) -> None:
    """Give an organization another name."""
    installation = ctx.with_resource(opened())
    accounts.rename_organization(installation.database, installation.control, organization_id, name, actor=OPERATOR)
    click.echo(f"{organization_id} is renamed.")


@organizations.command("policy")
@click.argument("organization_id")
@click.option("--set", "text", help='The whole policy as JSON, e.g. {"requireSoc2": true}; {} removes it.')
@click.pass_context
def policy(ctx: click.Context, organization_id: str, text: str | None) -> None:
    """Print the compliance policy, or replace it."""
    installation = ctx.with_resource(opened())
    if text is None:
        found = accounts.find_organization(installation.database, organization_id)
    else:
        found = accounts.set_policy(
            installation.database, installation.control, organization_id, read_object(text), actor=OPERATOR
        )
    click.echo(json.dumps(dict(found.policy), indent=2, sort_keys=True))


def _set_status(ctx: click.Context, organization_id: str, status: str) -> None:
    installation = ctx.with_resource(opened())
    found = accounts.set_organization_status(
        installation.database, installation.control, organization_id, status, actor=OPERATOR
    )
    click.echo(f"{found.id} is {found.status}.")
