"""`organizations`: create and block organizations, beside the operations of the management API."""

import click

from gateway.accounts import organizations as accounts
from gateway.accounts.changes import OPERATOR
from gateway.accounts.models import OrganizationStatus
from gateway.operator.derived_commands import make_group
from gateway.operator.installation_commands import opened
from gateway.operator.output import AS_JSON, print_result, print_state

organizations = make_group("organizations", "Organizations and their compliance policy.")


@organizations.command()
@AS_JSON
@click.argument("name")
@click.pass_context
def create(ctx: click.Context, name: str) -> None:
    """Create an organization; add its owner with `members add`."""
    installation = ctx.with_resource(opened())
    organization = accounts.create_organization(installation.database, installation.control, name, actor=OPERATOR)
    print_result(organization.id, id=organization.id)


@organizations.command()
@AS_JSON
@click.argument("organization_id")
@click.pass_context
def block(ctx: click.Context, organization_id: str) -> None:
    """Block an organization: all its keys are rejected."""
    _set_status(ctx, organization_id, "blocked")


@organizations.command()
@AS_JSON
@click.argument("organization_id")
@click.pass_context
def unblock(ctx: click.Context, organization_id: str) -> None:
    """Unblock an organization: its keys are accepted again."""
    _set_status(ctx, organization_id, "active")


def _set_status(ctx: click.Context, organization_id: str, status: OrganizationStatus) -> None:
    installation = ctx.with_resource(opened())
    info = accounts.set_organization_status(
        installation.database, installation.control, organization_id, status, actor=OPERATOR
    )
    print_state(info.id, info.status, "status")
