"""`members`: members of organizations, and passwords."""

import click

from gateway.accounts import members as accounts
from gateway.accounts.changes import OPERATOR
from gateway.accounts.passkeys import Passkeys
from gateway.accounts.roles import Role
from gateway.accounts.second_factor import SecondFactors
from gateway.errors import NotFound
from gateway.operator.command_values import read_secret
from gateway.operator.derived_commands import make_group
from gateway.operator.installation_commands import Installation, opened
from gateway.operator.output import AS_JSON, print_result

ROLES = click.Choice(accounts.ROLES)

members = make_group("members", "Members of organizations, and passwords.")


@members.command()
@AS_JSON
@click.argument("organization_id")
@click.argument("email")
@click.option("--role", type=ROLES, default="developer", show_default=True, help="The member's role.")
@click.option("--name", default="", help="Display name.")
@click.pass_context
def add(ctx: click.Context, organization_id: str, email: str, role: Role, name: str) -> None:
    """Add a person to an organization."""
    installation = ctx.with_resource(opened())
    member = accounts.add_member(
        installation.database, installation.control, organization_id, email, role, name=name, actor=OPERATOR
    )
    print_result(member.id, id=member.id)


@members.command("set-password")
@AS_JSON
@click.argument("email")
@click.pass_context
def set_password(ctx: click.Context, email: str) -> None:
    """Set a person's password and end their sessions.

    The password is asked for at a terminal, and otherwise read from standard input: arguments are visible in the
    process list.
    """
    installation = ctx.with_resource(opened())
    user_id, address = _user(installation, email)
    password = read_secret(f"New password of {address}", confirm=True)
    database = installation.database
    control = installation.control
    passwords = installation.passwords
    accounts.set_password(database, control, passwords, user_id, password, actor=OPERATOR)
    print_result(f"The password of {address} was set; their sessions have ended.", email=address, user=user_id)


@members.command("reset-second-factor")
@AS_JSON
@click.argument("email")
@click.pass_context
def reset_second_factor(ctx: click.Context, email: str) -> None:
    """Remove the second factor and the passkeys of a person who lost them. The password then suffices."""
    installation = ctx.with_resource(opened())
    user_id, address = _user(installation, email)
    factors = SecondFactors(installation.database, installation.vault, installation.secrets.hash_keys)
    removed = factors.remove(user_id, actor=OPERATOR)
    passkeys = Passkeys(installation.database, installation.secrets.hash_keys).remove_all(user_id, actor=OPERATOR)
    if removed:
        text = f"The second factor of {address} was removed."
    else:
        text = f"{address} has no second factor."
    if passkeys:
        text += f" Removed passkeys: {passkeys}."
    print_result(text, email=address, user=user_id, removed=removed, passkeys=passkeys)


def _user(installation: Installation, email: str) -> tuple[str, str]:
    """Return the id and the normalized address of a user. Raises NotFound."""
    address = accounts.read_email(email)
    user_id = next(
        (member.user_id for member in accounts.list_members(installation.database) if member.email == address), ""
    )
    if not user_id:
        raise NotFound(f"There is no member {address}.")
    return user_id, address
