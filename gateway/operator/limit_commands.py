"""`limits`: spending limits of keys, members and teams."""

from functools import partial

import click

from gateway.accounts import keys
from gateway.accounts.members import list_members
from gateway.accounts.models import Scope
from gateway.accounts.rules import organization_of
from gateway.accounts.teams import list_teams
from gateway.errors import NotFound
from gateway.limits.budgets import Budgets, Limits, Status
from gateway.money import format_usd
from gateway.operator.derived_commands import make_group
from gateway.operator.installation_commands import Installation, opened
from gateway.operator.output import AS_JSON, print_table, show_time

SCOPES: tuple[Scope, ...] = ("key", "member", "team")
HEADER = ("ID", "LIMIT", "USED", "PERIOD LIMIT", "PERIOD", "USED IN IT", "RESETS", "ALERT AT")

limits = make_group("limits", "Spending limits of API keys, members and teams.")


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
    shown_ids = subjects or [info.id for read in (list_teams, list_members, keys.list_keys) for info in read(database)]
    statuses = Budgets(database, installation.control).statuses(shown_ids)
    shown = {ident: status for ident, status in statuses.items() if subjects or status.limits != Limits()}
    print_table(HEADER, [(ident, *_row(status)) for ident, status in shown.items()], "There are no limits.")


def _check(installation: Installation, subject: str) -> None:
    """Raise NotFound unless this is the id of a key, member or team."""
    for scope in SCOPES:
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
