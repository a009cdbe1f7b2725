"""`keys`: API keys. Commands that revoke a token return when every worker rejects it."""

import click

from gateway.accounts import keys as api_keys
from gateway.accounts.changes import OPERATOR
from gateway.accounts.key_caps import read_caps
from gateway.accounts.members import list_members
from gateway.accounts.projects import ProjectInfo, list_projects
from gateway.accounts.tokens import Kind
from gateway.errors import InvalidRequest, NotFound
from gateway.operator.installation_commands import Installation, check_scope, opened
from gateway.operator.output import AS_JSON, print_result, print_table, read_expiry, show_time


@click.group()
def keys() -> None:
    """API keys."""


@keys.command("list")
@AS_JSON
@click.option("--project", help="Only keys of this project.")
@click.option("--deleted", is_flag=True, help="Include deleted keys.")
@click.pass_context
def list_(ctx: click.Context, project: str | None, deleted: bool) -> None:
    """List keys, oldest first."""
    installation = ctx.with_resource(opened())
    check_scope(installation, project=project or "")
    projects = [project] if project else None
    found = api_keys.list_keys(installation.database, project_ids=projects, deleted=deleted)
    rows = [
        (
            key.id,
            key.state if key.owner_active else "owner inactive",
            key.kind,
            key.mask,
            show_time(key.expires_at_us),
            key.project_id,
            key.description,
        )
        for key in found
    ]
    print_table(("ID", "STATE", "KIND", "TOKEN", "EXPIRES", "PROJECT", "DESCRIPTION"), rows, "There are no keys.")


@keys.command()
@AS_JSON
@click.option("--description", required=True, help="Name in lists.")
@click.option("--project", help="Project id; required if there are several projects.")
@click.option("--member", help="Member who owns the key; default: the organization's first owner.")
@click.option(
    "--kind",
    type=click.Choice(["user", "customer"]),
    default="user",
    show_default=True,
    help="customer: a key for your customer, which can only call models.",
)
@click.option("--expires", help="30d, 12h, 2w, 1mo, an ISO date, or never.", default="never", show_default=True)
@click.pass_context
def create(
    ctx: click.Context, description: str, project: str | None, member: str | None, kind: Kind, expires: str
) -> None:
    """Create a key and print its token, once."""
    installation = ctx.with_resource(opened())
    chosen = choose_project(installation, project)
    owner = member or first_owner(installation, chosen.organization_id)
    expiry = read_expiry(expires, installation.clock.now_us())
    draft = api_keys.Draft(chosen.id, owner, description, kind, expiry)
    hash_keys = installation.secrets.hash_keys
    caps = read_caps(installation.settings.limits)
    key = api_keys.create(installation.database, installation.control, hash_keys, draft, actor=OPERATOR, caps=caps)
    print_token(key)


@keys.command()
@AS_JSON
@click.argument("key_id")
@click.pass_context
def roll(ctx: click.Context, key_id: str) -> None:
    """Replace the token of a key and print the new one. The old token is rejected when this returns."""
    installation = ctx.with_resource(opened())
    hash_keys = installation.secrets.hash_keys
    print_token(api_keys.roll(installation.database, installation.control, hash_keys, key_id, actor=OPERATOR))


@keys.command()
@AS_JSON
@click.argument("key_id")
@click.option("--expires", help="New expiry: 30d, 12h, 2w, 1mo, an ISO date, or never.")
@click.pass_context
def activate(ctx: click.Context, key_id: str, expires: str | None) -> None:
    """Activate an inactive key, or an expired key with a new expiry."""
    installation = ctx.with_resource(opened())
    expiry = None
    if expires:
        expiry = api_keys.Expiry(read_expiry(expires, installation.clock.now_us()))
    _update(installation, key_id, api_keys.Change("activate", expiry=expiry))


@keys.command()
@AS_JSON
@click.argument("key_id")
@click.pass_context
def deactivate(ctx: click.Context, key_id: str) -> None:
    """Deactivate a key until it is activated again."""
    _update(ctx.with_resource(opened()), key_id, api_keys.Change("deactivate"))


@keys.command()
@AS_JSON
@click.argument("key_id")
@click.pass_context
def revoke(ctx: click.Context, key_id: str) -> None:
    """Revoke a key permanently."""
    installation = ctx.with_resource(opened())
    info = api_keys.revoke(installation.database, installation.control, key_id, actor=OPERATOR)
    print_result(f"{info.id} is {info.state}.", id=info.id, state=info.state)


@keys.command()
@AS_JSON
@click.argument("key_id")
@click.pass_context
def delete(ctx: click.Context, key_id: str) -> None:
    """Delete a key; its past spending stays on record."""
    installation = ctx.with_resource(opened())
    api_keys.delete(installation.database, installation.control, key_id, actor=OPERATOR)
    print_result(f"{key_id} was deleted.", id=key_id, state="deleted")


def print_token(key: api_keys.NewKey) -> None:
    """Print the token of a new or rolled key, and a note that it is shown only once."""
    print_result(key.token, id=key.info.id, token=key.token)
    click.echo(f"This is the token of {key.info.id}. Save it now; it is not shown again.", err=True)


def choose_project(installation: Installation, project_id: str | None) -> ProjectInfo:
    """Return the given project, or the only active project. Raises NotFound, or InvalidRequest if there are several."""
    active = [project for project in list_projects(installation.database) if project.status == "active"]
    if project_id:
        chosen = [project for project in active if project.id == project_id]
    else:
        chosen = active
    if not chosen:
        raise NotFound(f"There is no active project{f' {project_id}' if project_id else ''}.")
    if len(chosen) > 1:
        names = ", ".join(f"{project.id} ({project.name})" for project in chosen)
        raise InvalidRequest(f"There are several projects. Choose one with --project: {names}.")
    return chosen[0]


def first_owner(installation: Installation, organization_id: str) -> str:
    """Return the id of the organization's oldest active owner. Raises NotFound."""
    for member in list_members(installation.database, organization_id):
        if member.role == "owner" and member.status == "active":
            return member.id
    raise NotFound(f"Organization {organization_id} has no active owner. Choose a member with --member.")


def _update(installation: Installation, key_id: str, change: api_keys.Change) -> None:
    caps = read_caps(installation.settings.limits)
    info = api_keys.update(installation.database, installation.control, key_id, change, actor=OPERATOR, caps=caps)
    expires = show_time(info.expires_at_us)
    print_result(f"{info.id} is {info.state}, expires: {expires}.", id=info.id, state=info.state, expires=expires)
