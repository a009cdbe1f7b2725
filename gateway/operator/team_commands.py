"""`teams`: groups of members that share access rules and spending limits."""

import click

from gateway.accounts import teams as accounts
from gateway.accounts.changes import OPERATOR
from gateway.errors import NotFound
from gateway.operator.installation_commands import Installation, check_scope, opened
from gateway.operator.output import AS_JSON, print_result, print_table


@click.group()
def teams() -> None:
    """Teams; their spending limits are set with `limits set`."""


@teams.command("list")
@AS_JSON
@click.argument("organization_id", default="")
@click.pass_context
def list_(ctx: click.Context, organization_id: str) -> None:
    """List teams, oldest first; optionally of one organization."""
    installation = ctx.with_resource(opened())
    check_scope(installation, organization_id)
    found = accounts.list_teams(installation.database, organization_id)
    rows = [
        (one.id, one.organization_id, len(one.member_ids), "yes" if one.limited else "no", one.name) for one in found
    ]
    print_table(("ID", "ORGANIZATION", "MEMBERS", "LIMITED", "NAME"), rows, "There are no teams.")


@teams.command()
@AS_JSON
@click.argument("organization_id")
@click.argument("name")
@click.pass_context
def create(ctx: click.Context, organization_id: str, name: str) -> None:
    """Create a team."""
    installation = ctx.with_resource(opened())
    team = accounts.create_team(installation.database, installation.control, organization_id, name, actor=OPERATOR)
    print_result(team.id, id=team.id)


@teams.command()
@AS_JSON
@click.argument("team_id")
@click.pass_context
def show(ctx: click.Context, team_id: str) -> None:
    """List the members of a team."""
    team = find_team(ctx.with_resource(opened()), team_id)
    print_table(("MEMBER",), [(member_id,) for member_id in team.member_ids], f"{team.name} has no members.")


@teams.command()
@AS_JSON
@click.argument("team_id")
@click.argument("name")
@click.pass_context
def rename(ctx: click.Context, team_id: str, name: str) -> None:
    """Rename a team."""
    installation = ctx.with_resource(opened())
    organization_id = find_team(installation, team_id).organization_id
    accounts.rename_team(installation.database, installation.control, organization_id, team_id, name, actor=OPERATOR)
    print_result(f"{team_id} was renamed.", id=team_id, name=name)


@teams.command()
@AS_JSON
@click.argument("team_id")
@click.pass_context
def delete(ctx: click.Context, team_id: str) -> None:
    """Delete a team with its access rules and limits; its past spending stays on record."""
    installation = ctx.with_resource(opened())
    organization_id = find_team(installation, team_id).organization_id
    accounts.delete_team(installation.database, installation.control, organization_id, team_id, actor=OPERATOR)
    print_result(f"{team_id} was deleted.", id=team_id, deleted=True)


@teams.command()
@AS_JSON
@click.argument("team_id")
@click.argument("member_id")
@click.pass_context
def add(ctx: click.Context, team_id: str, member_id: str) -> None:
    """Add a member to a team."""
    _set(ctx, team_id, member_id, True)


@teams.command()
@AS_JSON
@click.argument("team_id")
@click.argument("member_id")
@click.pass_context
def remove(ctx: click.Context, team_id: str, member_id: str) -> None:
    """Remove a member from a team."""
    _set(ctx, team_id, member_id, False)


def find_team(installation: Installation, team_id: str) -> accounts.TeamInfo:
    """Return a team of any organization. Raises NotFound."""
    found = [one for one in accounts.list_teams(installation.database) if one.id == team_id]
    if not found:
        raise NotFound(f"There is no team {team_id}.")
    return found[0]


def _set(ctx: click.Context, team_id: str, member_id: str, belongs: bool) -> None:
    installation = ctx.with_resource(opened())
    accounts.set_team_member(installation.database, installation.control, team_id, member_id, belongs, actor=OPERATOR)
    text = f"{member_id} is {'in' if belongs else 'not in'} {team_id}."
    print_result(text, team=team_id, member=member_id, belongs=belongs)
