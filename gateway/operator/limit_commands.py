"""`limits`: spending limits of keys, members and teams."""

import dataclasses
from typing import Any

import click

from gateway.accounts import keys
from gateway.accounts.changes import OPERATOR
from gateway.accounts.members import MemberInfo, list_members
from gateway.accounts.teams import list_teams
from gateway.admin.funding import Funding, LimitEdit
from gateway.errors import InvalidRequest, NotFound
from gateway.limits.budgets import Limits, Status
from gateway.limits.models import KEY, MEMBER, TEAM
from gateway.limits.periods import read_period
from gateway.money import format_usd
from gateway.operator.installation_commands import Installation, opened
from gateway.operator.output import AS_JSON, print_table, read_usd, show_time
from gateway.operator.team_commands import find_team

HEADER = ("ID", "LIMIT", "USED", "PERIOD LIMIT", "PERIOD", "USED IN IT", "RESETS", "ALERT AT")
KEY_PREFIX = "key_"
MEMBER_PREFIX = "member_"
TEAM_PREFIX = "team_"


@click.group()
def limits() -> None:
    """Spending limits of API keys, members and teams."""


@limits.command("set")
@AS_JSON
@click.argument("subject")
@click.option("--total", help="US dollars in total, or none.")
@click.option("--amount", help="US dollars per period, or none.")
@click.option("--period", help="Length of the period: 12h, 1d, 2w, 1mo.")
@click.option("--alert-at", help="Percentages of the limits at which an alert is sent: 50,80,95, or default.")
@click.pass_context
def set_(
    ctx: click.Context, subject: str, total: str | None, amount: str | None, period: str | None, alert_at: str | None
) -> None:
    """Set limits of SUBJECT (the id of a key, member or team). Options that are absent change nothing."""
    if (total, amount, period, alert_at) == (None,) * 4:
        raise InvalidRequest("Give at least one of --total, --amount with --period, and --alert-at.")
    installation = ctx.with_resource(opened())
    funding = Funding(installation.database, installation.control)
    changes: dict[str, Any] = {}
    if total is not None:
        changes["total_nusd"] = _read_limit(total)
    if amount is not None:
        changes["period_nusd"] = _read_limit(amount)
    if period is not None:
        changes["period"] = read_period(period)
    if alert_at is not None:
        changes["alert_at"] = _read_thresholds(alert_at)
    if amount == "none":
        changes["period"] = None

    def edit(before: Limits) -> Limits:
        return dataclasses.replace(before, **changes)

    _change(installation, funding, subject, edit)


@limits.command()
@AS_JSON
@click.argument("subject")
@click.pass_context
def clear(ctx: click.Context, subject: str) -> None:
    """Remove all limits of SUBJECT (the id of a key, member or team). Its counters stay."""
    installation = ctx.with_resource(opened())

    def edit(before: Limits) -> Limits:
        return Limits()

    _change(installation, Funding(installation.database, installation.control), subject, edit)


@limits.command()
@AS_JSON
@click.argument("subjects", nargs=-1)
@click.pass_context
def show(ctx: click.Context, subjects: tuple[str, ...]) -> None:
    """Show limits and counters of SUBJECTS (ids of keys, members or teams); default: all that have limits."""
    installation = ctx.with_resource(opened())
    for subject in subjects:
        _find(installation, subject)
    shown_ids = subjects or _all(installation)
    statuses = Funding(installation.database, installation.control).budgets.statuses(shown_ids)
    shown = {ident: one for ident, one in statuses.items() if subjects or one.limits != Limits()}
    print_table(HEADER, [(ident, *_row(status)) for ident, status in shown.items()], "There are no limits.")


def _change(installation: Installation, funding: Funding, subject: str, edit: LimitEdit) -> None:
    scope, organization_id = _find(installation, subject)
    funding.set_limits(scope, subject, organization_id, edit, actor=OPERATOR)
    print_table(HEADER, [(subject, *_row(funding.budgets.status(subject)))], "")


def _find(installation: Installation, subject: str) -> tuple[str, str]:
    """Return the scope and organization of a key, member or team. Raises NotFound."""
    if subject.startswith(TEAM_PREFIX):
        return TEAM, find_team(installation, subject).organization_id
    if not subject.startswith((KEY_PREFIX, MEMBER_PREFIX)):
        raise NotFound(f"{subject} is not the id of a key (key_…), member (member_…) or team (team_…).")
    if not subject.startswith(MEMBER_PREFIX):
        return KEY, keys.find(installation.database, subject).organization_id
    found: list[MemberInfo] = [one for one in list_members(installation.database) if one.id == subject]
    if not found:
        raise NotFound(f"There is no member {subject}.")
    return MEMBER, found[0].organization_id


def _all(installation: Installation) -> list[str]:
    database = installation.database
    return [one.id for some in (list_teams, list_members, keys.list_keys) for one in some(database)]


def _read_limit(text: str) -> int | None:
    if text == "none":
        return None
    return read_usd(text)


def _read_thresholds(text: str) -> tuple[int, ...]:
    try:
        if text == "default":
            return ()
        return tuple(int(one.strip(" %")) for one in text.split(","))
    except ValueError:
        raise InvalidRequest(f"{text!r} is not a list of percentages. Use a format like 50,80,95.") from None


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
