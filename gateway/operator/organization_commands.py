"""`organizations`: create, list and block organizations; compliance policy and caps on active keys."""

import click

from gateway.accounts import organizations as accounts
from gateway.accounts.changes import OPERATOR
from gateway.accounts.key_caps import OwnCaps, find_cap_usage, find_caps, read_caps, set_caps
from gateway.accounts.models import OrganizationStatus
from gateway.errors import InvalidRequest
from gateway.operator.installation_commands import opened
from gateway.operator.output import AS_JSON, print_json, print_result, print_table, read_object, show_time


@click.group()
def organizations() -> None:
    """Organizations and their compliance policy."""


@organizations.command("list")
@AS_JSON
@click.pass_context
def list_(ctx: click.Context) -> None:
    """List organizations, oldest first."""
    found = accounts.list_organizations(ctx.with_resource(opened()).database)
    rows = [(one.id, one.status, show_time(one.created_at_us), one.name) for one in found]
    print_table(("ID", "STATUS", "CREATED", "NAME"), rows, "There are no organizations.")


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


@organizations.command("rename")
@AS_JSON
@click.argument("organization_id")
@click.argument("name")
@click.pass_context
def rename(ctx: click.Context, organization_id: str, name: str) -> None:
    """Rename an organization."""
    installation = ctx.with_resource(opened())
    accounts.rename_organization(installation.database, installation.control, organization_id, name, actor=OPERATOR)
    print_result(f"{organization_id} was renamed.", id=organization_id, name=name)


@organizations.command("policy")
@AS_JSON
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
            installation.database,
            installation.control,
            organization_id,
            read_object(text),
            actor=OPERATOR,
            known=installation.names_known_to(organization_id),
        )
    print_json(dict(sorted(found.policy.items())))


@organizations.command("key-caps")
@AS_JSON
@click.argument("organization_id")
@click.option("--max", "total", help="Maximum of active API keys: a number, none, or default (the installation's).")
@click.option("--per-member", help="Maximum of active API keys per member, in the same format.")
@click.pass_context
def key_caps(ctx: click.Context, organization_id: str, total: str | None, per_member: str | None) -> None:
    """Print the caps on active API keys, or set the organization's own caps; existing keys stay active."""
    installation = ctx.with_resource(opened())
    own = find_caps(installation.database, organization_id)
    if total is not None or per_member is not None:
        own = OwnCaps(_read_cap(total, own.total), _read_cap(per_member, own.member))
        set_caps(installation.database, installation.control, organization_id, own, actor=OPERATOR)
    defaults = read_caps(installation.settings.limits)
    caps = own.over(defaults)
    usage = find_cap_usage(installation.database, organization_id, "", defaults)
    row = (usage.count, caps.total or "none", caps.member or "none")
    print_table(("ACTIVE KEYS", "CAP", "CAP PER MEMBER"), [row], "")


def _read_cap(text: str | None, before: int | None) -> int | None:
    if text is None:
        return before
    if text in ("none", "default"):
        if text == "none":
            return 0
        return None
    if not text.isdecimal() or not int(text):
        raise InvalidRequest(f"{text!r} is not a cap on API keys. Use a number from 1, none or default.")
    return int(text)


def _set_status(ctx: click.Context, organization_id: str, status: OrganizationStatus) -> None:
    installation = ctx.with_resource(opened())
    found = accounts.set_organization_status(
        installation.database, installation.control, organization_id, status, actor=OPERATOR
    )
    print_result(f"{found.id} is {found.status}.", id=found.id, status=found.status)
