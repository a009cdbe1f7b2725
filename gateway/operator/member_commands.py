"""`members`: members of organizations, and passwords."""

from functools import partial

import click

from gateway.accounts import keys as accounts_keys
from gateway.accounts import keys as api_keys
from gateway.accounts import members as accounts
from gateway.accounts import organizations as accounts_accounts
from gateway.accounts.changes import OPERATOR
from gateway.accounts.members import list_members
from gateway.accounts.passkeys import Passkeys
from gateway.accounts.provider_keys import ProviderKeys
from gateway.accounts.rules import organization_of
from gateway.accounts.second_factor import SecondFactors
from gateway.accounts.teams import list_teams
from gateway.admin.default_limits import insert_default_limits
from gateway.callers import permissions
from gateway.callers.models import OrganizationStatus, Scope
from gateway.callers.permissions import Role
from gateway.errors import NotFound
from gateway.limits.budgets import Budgets, Limits, Status
from gateway.money import format_usd
from gateway.operator.derived_commands import make_group, read_secret
from gateway.operator.installation_commands import Installation, opened
from gateway.operator.output import AS_JSON, print_result, print_state, print_table, show_time
from gateway.runtime.plurals import many, plural

# `organizations`: create and block organizations, beside the operations of the management API.

organizations = make_group("organizations", "Organizations and their compliance policy.")


@organizations.command()
@AS_JSON
@click.argument("name")
@click.pass_context
def create(ctx: click.Context, name: str) -> None:
    """Create an organization; add its owner with `members add`."""
    installation = ctx.with_resource(opened())
    stores = installation.database, installation.control
    limits = installation.settings.organizations.limits
    organization = accounts_accounts.create_organization(
        *stores, name, actor=OPERATOR, furnish=lambda ident, now: insert_default_limits(*stores, ident, limits, now)
    )
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
    info = accounts_accounts.set_organization_status(
        installation.database, installation.control, organization_id, status, actor=OPERATOR
    )
    print_state(info.id, info.status, "status")


# `limits`: spending limits of keys, members and teams.

LIMIT_SCOPES: tuple[Scope, ...] = ("key", "member", "team")
HEADER = ("ID", "LIMIT", "USED", "PERIOD LIMIT", "PERIOD", "USED IN IT", "RESETS", "ALERT AT")

limits = make_group("limits", "Spending limits of any subject: keys, people, teams, models, end users.")


@limits.command()
@AS_JSON
@click.argument("subjects", nargs=-1)
@click.pass_context
def show(ctx: click.Context, subjects: tuple[str, ...]) -> None:
    """Show limits and counters of SUBJECTS (ids of keys, members or teams); default: all that have limits."""
    installation = ctx.with_resource(opened())
    database = installation.database
    for subject in subjects:
        _check(installation, subject)
    shown_ids = subjects or [
        info.id for read in (list_teams, list_members, accounts_keys.list_keys) for info in read(database)
    ]
    statuses = Budgets(database, installation.control).statuses(shown_ids)
    shown = {ident: status for ident, status in statuses.items() if subjects or status.limits != Limits()}
    print_table(HEADER, [(ident, *_row(status)) for ident, status in shown.items()], "There are no limits.")


def _check(installation: Installation, subject: str) -> None:
    """Raise NotFound unless this is the id of a key, member or team."""
    for scope in LIMIT_SCOPES:
        if subject.startswith(f"{scope}_"):
            installation.database.read(partial(organization_of, scope, subject))
            return
    raise NotFound(f"{subject} is not the id of a key (key_…), member (member_…) or team (team_…).")


def _row(status: Status) -> tuple[str, ...]:
    own = status.limits
    return (
        "none" if own.total_nusd is None else format_usd(own.total_nusd),
        format_usd(status.usage_nusd),
        "none" if own.period_nusd is None else format_usd(own.period_nusd),
        str(own.period or ""),
        format_usd(status.period_usage_nusd) if own.period else "",
        show_time(status.period_resets_us) if status.period_resets_us else "",
        ",".join(map(str, own.alert_at)),
    )


# `provider-keys`: an organization's own provider keys.

provider_keys = make_group("provider-keys", "An organization's own provider keys.")


@provider_keys.command("reseal")
@AS_JSON
@click.pass_context
def reseal(ctx: click.Context) -> None:
    """Encrypt all keys and the secrets of callbacks, alerts and second factors again, with the newest encryption key.

    An older encryption key can be removed when the payloads, stored responses and videos of its time are deleted.
    """
    installation = ctx.with_resource(opened())
    count = ProviderKeys(installation.database, installation.control, installation.vault).reseal()
    print_result(f"{many(count, 'key')} {plural(count, 'is', 'are')} encrypted with the newest key.", keys=count)


# `keys`: API keys. Commands that revoke a token return when every worker rejects it.

keys = make_group("keys", "API keys.")


@keys.command()
@AS_JSON
@click.argument("key_id")
@click.pass_context
def revoke(ctx: click.Context, key_id: str) -> None:
    """Revoke a key permanently."""
    installation = ctx.with_resource(opened())
    info = api_keys.revoke(installation.database, installation.control, key_id, actor=OPERATOR)
    print_state(info.id, info.state)


ROLES = click.Choice(permissions.ROLES)

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
    text = f"The second factor of {address} was removed." if removed else f"{address} has no second factor."
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
