"""`projects`: create, list, change and archive projects."""

from typing import Any

import click

from gateway.accounts import projects as accounts
from gateway.accounts.changes import OPERATOR
from gateway.operator.installation_commands import check_scope, opened
from gateway.operator.output import AS_JSON, print_result, print_table

MODES = click.Choice(accounts.CHOICES["mode"])
SHOWN = ("id", "name", "status", "mode", "cache_enabled", "cache_ttl_s", "retention", "retention_days")


@click.group()
def projects() -> None:
    """Projects."""


@projects.command("list")
@AS_JSON
@click.option("--organization", help="Only projects of this organization.")
@click.pass_context
def list_(ctx: click.Context, organization: str | None) -> None:
    """List projects, oldest first."""
    installation = ctx.with_resource(opened())
    check_scope(installation, organization or "")
    found = accounts.list_projects(installation.database, [organization] if organization else None)
    rows = [(one.id, one.status, one.mode, _cache(one), one.retention, one.organization_id, one.name) for one in found]
    print_table(("ID", "STATUS", "MODE", "CACHE", "RETENTION", "ORGANIZATION", "NAME"), rows, "There are no projects.")


@projects.command()
@AS_JSON
@click.argument("organization_id")
@click.argument("name")
@click.option("--mode", type=MODES, help="Default: [organizations] project_mode of the configuration.")
@click.pass_context
def create(ctx: click.Context, organization_id: str, name: str, mode: str | None) -> None:
    """Create a project."""
    installation = ctx.with_resource(opened())
    project = accounts.create_project(
        installation.database,
        installation.control,
        organization_id,
        name,
        mode=mode or "",
        defaults=installation.settings.organizations,
        actor=OPERATOR,
    )
    print_result(project.id, id=project.id)


@projects.command("set")
@AS_JSON
@click.argument("project_id")
@click.option("--name", help="New name.")
@click.option(
    "--mode",
    type=MODES,
    help="Which provider keys are used: the installation's (credits), the organization's own, or its own first.",
)
@click.option("--cache/--no-cache", "cache_enabled", default=None, help="The response cache.")
@click.option("--cache-ttl", "cache_ttl_s", type=int, help="Seconds, 10 to 31536000.")
@click.option("--retention", type=click.Choice(accounts.CHOICES["retention"]), help="Whether payloads are retained.")
@click.option("--retention-days", type=int, help="Retention in days, 1 to 3650.")
@click.option(
    "--cache-markers",
    type=click.Choice(tuple(accounts.MARKERS)),
    help="Whether the caller or the gateway sets cache markers for providers' prompt caches.",
)
@click.pass_context
def set_(ctx: click.Context, project_id: str, **given: Any) -> None:
    """Change settings of a project. They apply when the command returns."""
    if given["cache_markers"]:
        given["cache_markers"] = accounts.MARKERS[given["cache_markers"]]
    _change(ctx, project_id, accounts.ProjectChange(**given))


@projects.command()
@AS_JSON
@click.argument("project_id")
@click.pass_context
def archive(ctx: click.Context, project_id: str) -> None:
    """Archive a project: all its keys are rejected."""
    _change(ctx, project_id, accounts.ProjectChange(status="archived"))


@projects.command()
@AS_JSON
@click.argument("project_id")
@click.pass_context
def restore(ctx: click.Context, project_id: str) -> None:
    """Restore an archived project: its keys are accepted again."""
    _change(ctx, project_id, accounts.ProjectChange(status="active"))


def _change(ctx: click.Context, project_id: str, change: accounts.ProjectChange) -> None:
    installation = ctx.with_resource(opened())
    found = accounts.update_project(installation.database, installation.control, project_id, change, actor=OPERATOR)
    print_result(
        f"{found.id} is {found.status}: mode {found.mode}, cache {_cache(found)}, retention {found.retention}.",
        **{name: getattr(found, name) for name in SHOWN},
        cache_markers=accounts.name_markers(found.cache_markers),
    )


def _cache(project: accounts.ProjectInfo) -> str:
    if project.cache_enabled:
        return f"{project.cache_ttl_s}s"
    return "off"
