"""`members`: members of organizations, their roles and passwords."""

import sys

import click

from gateway.accounts import members as accounts
from gateway.accounts.changes import OPERATOR
from gateway.accounts.invitations import Invitations
from gateway.accounts.mail_queue import MailQueue
from gateway.accounts.models import Role
from gateway.accounts.second_factor import SecondFactors
from gateway.accounts.throttle import Throttle
from gateway.admin.letters import Letters
from gateway.configuration.mail_settings import MAIL_PASSWORD
from gateway.errors import NotFound
from gateway.operator.installation_commands import Installation, address_of, check_scope, opened
from gateway.operator.output import AS_JSON, print_result, print_table
from gateway.store.documents import Documents
from gateway.transport.mail import Mailer

ROLES = click.Choice(accounts.ROLES)


@click.group()
def members() -> None:
    """Members of organizations, and passwords."""


@members.command("list")
@AS_JSON
@click.option("--organization", default="", help="Only members of this organization.")
@click.pass_context
def list_(ctx: click.Context, organization: str) -> None:
    """List members, oldest first."""
    installation = ctx.with_resource(opened())
    check_scope(installation, organization)
    found = accounts.list_members(installation.database, organization)
    rows = [(one.id, one.role, one.status, one.email, one.user_id, one.organization_id) for one in found]
    print_table(("ID", "ROLE", "STATUS", "EMAIL", "USER", "ORGANIZATION"), rows, "There are no members.")


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


@members.command()
@AS_JSON
@click.argument("organization_id")
@click.argument("email")
@click.option("--role", type=ROLES, default="developer", show_default=True, help="The member's role.")
@click.pass_context
def invite(ctx: click.Context, organization_id: str, email: str, role: Role) -> None:
    """Invite a person and print the link, once. It is valid for a week. If e-mail is configured, it is also sent."""
    installation = ctx.with_resource(opened())
    invitations = Invitations(installation.database, installation.control, installation.secrets)
    made = invitations.invite(organization_id, email, role, actor=OPERATOR)
    path = f"/connect/invitation?token={made.token}"
    emailed = _letters(installation).send_invitation(made.info, path)
    link = address_of(installation) + path
    if emailed:
        text = f"{link}\nThe link was also sent by e-mail."
    else:
        text = link
    print_result(text, email=email, role=role, link=link, emailed=emailed)


@members.command("set-role")
@AS_JSON
@click.argument("member_id")
@click.argument("role", type=ROLES)
@click.pass_context
def set_role(ctx: click.Context, member_id: str, role: Role) -> None:
    """Change a member's role."""
    _update(ctx, member_id, role=role)


@members.command()
@AS_JSON
@click.argument("member_id")
@click.pass_context
def deactivate(ctx: click.Context, member_id: str) -> None:
    """Deactivate a member: all their keys are rejected."""
    _update(ctx, member_id, active=False)


@members.command()
@AS_JSON
@click.argument("member_id")
@click.pass_context
def activate(ctx: click.Context, member_id: str) -> None:
    """Activate a member: their keys are accepted again."""
    _update(ctx, member_id, active=True)


@members.command("set-password")
@AS_JSON
@click.argument("email")
@click.pass_context
def set_password(ctx: click.Context, email: str) -> None:
    """Set a person's password and end their sessions.

    The password is read from standard input, because arguments are visible in the process list.
    """
    installation = ctx.with_resource(opened())
    user_id, address = _user(installation, email)
    password = sys.stdin.readline().rstrip("\r\n")
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
    """Remove the second factor of a person who lost it and the recovery codes. The password then suffices."""
    installation = ctx.with_resource(opened())
    user_id, address = _user(installation, email)
    factors = SecondFactors(installation.database, installation.vault, installation.secrets.hash_keys)
    removed = factors.remove(user_id, actor=OPERATOR)
    if removed:
        text = f"The second factor of {address} was removed."
    else:
        text = f"{address} has no second factor."
    print_result(text, email=address, user=user_id, removed=removed)


def _user(installation: Installation, email: str) -> tuple[str, str]:
    """Return the id and the normalized address of a user. Raises NotFound."""
    address = accounts.read_email(email)
    user_id = next((one.user_id for one in _all(installation) if one.email == address), "")
    if not user_id:
        raise NotFound(f"There is no member {address}.")
    return user_id, address


def _update(ctx: click.Context, member_id: str, role: Role | None = None, active: bool | None = None) -> None:
    installation = ctx.with_resource(opened())
    organization_id = next((one.organization_id for one in _all(installation) if one.id == member_id), "")
    found = accounts.update_member(
        installation.database,
        installation.control,
        organization_id,
        member_id,
        role=role,
        active=active,
        actor=OPERATOR,
    )
    text = f"{found.id} is {found.status}, role {found.role}."
    print_result(text, id=found.id, status=found.status, role=found.role)


def _all(installation: Installation) -> list[accounts.MemberInfo]:
    return accounts.list_members(installation.database)


def _letters(installation: Installation) -> Letters:
    """Return the e-mail service. The running gateway delivers the queued messages."""
    chosen = installation.settings
    database = installation.database
    keys = installation.secrets.hash_keys
    mailer = Mailer(chosen.mail, chosen.secret(MAIL_PASSWORD))
    queue = MailQueue(Documents(database), installation.vault, mailer, installation.clock)
    throttle = Throttle(database, keys[0])
    passwords = installation.passwords
    return Letters(database, installation.control, passwords, throttle, queue, keys[0], chosen.server.public_url)
