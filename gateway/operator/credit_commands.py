"""`credits`: prepaid credits of organizations."""

import click

from gateway.accounts.changes import OPERATOR
from gateway.accounts.organizations import find_organization, list_organizations
from gateway.admin.funding import Funding, LedgerKind, Posting
from gateway.limits.ledger import Balance
from gateway.money import format_usd
from gateway.operator.installation_commands import Installation, opened
from gateway.operator.output import AS_JSON, only_one, print_result, print_table, read_usd, show_time

ORGANIZATION = click.option("--organization", help="Organization id; required if there are several organizations.")


@click.group()
def credits() -> None:
    """Prepaid credits of organizations."""


@credits.command()
@AS_JSON
@click.argument("amount")
@ORGANIZATION
@click.option("--note", default="", help="Shown in the history.")
@click.option("--reference", default="", help="Idempotency reference: repeating the command with it changes nothing.")
@click.pass_context
def grant(ctx: click.Context, amount: str, organization: str | None, note: str, reference: str) -> None:
    """Add AMOUNT US dollars."""
    _post(ctx, "grant", amount, organization, note, reference)


@credits.command()
@AS_JSON
@click.argument("amount")
@ORGANIZATION
@click.option("--note", required=True, help="Reason, shown in the history.")
@click.option("--reference", default="", help="Idempotency reference: repeating the command with it changes nothing.")
@click.pass_context
def adjust(ctx: click.Context, amount: str, organization: str | None, note: str, reference: str) -> None:
    """Adjust the balance by AMOUNT US dollars. Write a negative amount after --."""
    _post(ctx, "adjustment", amount, organization, note, reference)


@credits.command()
@AS_JSON
@ORGANIZATION
@click.option("--off", is_flag=True, help="Require credits again.")
@click.pass_context
def unlimited(ctx: click.Context, organization: str | None, off: bool) -> None:
    """Let an organization spend without credits. Usage is counted, and spending limits still apply."""
    installation = ctx.with_resource(opened())
    chosen = choose_organization(installation, organization)
    Funding(installation.database, installation.control).set_unlimited(chosen, not off, actor=OPERATOR)
    left = installation.ledger.balance(chosen)
    print_result(f"{chosen} {_describe(left)}.", **_facts(chosen, left))


@credits.command()
@AS_JSON
@ORGANIZATION
@click.pass_context
def balance(ctx: click.Context, organization: str | None) -> None:
    """Show remaining, spent and reserved credits of one organization or of all."""
    installation = ctx.with_resource(opened())
    infos = list_organizations(installation.database)
    if organization:
        infos = [find_organization(installation.database, organization)]
    rows = []
    for info in infos:
        state = installation.ledger.balance(info.id)
        if state.unlimited:
            left = "unlimited"
        else:
            left = format_usd(state.balance_nusd)
        rows.append((info.id, left, format_usd(state.spent_nusd), format_usd(state.reserved_nusd), info.name))
    print_table(("ORGANIZATION", "BALANCE", "SPENT", "RESERVED", "NAME"), rows, "There are no organizations.")


@credits.command()
@AS_JSON
@ORGANIZATION
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Maximum number of entries."
)
@click.pass_context
def history(ctx: click.Context, organization: str | None, limit: int) -> None:
    """Show the newest ledger entries: grants, hourly usage and adjustments."""
    installation = ctx.with_resource(opened())
    entries = installation.ledger.entries(choose_organization(installation, organization), limit)
    rows = [
        (show_time(entry.at), entry.kind, format_usd(entry.amount_nusd), entry.note, entry.ref) for entry in entries
    ]
    print_table(("AT", "KIND", "USD", "NOTE", "REFERENCE"), rows, "There are no entries.")


def choose_organization(installation: Installation, organization_id: str | None) -> str:
    """Return the id of the given or only organization. Raises NotFound, or InvalidRequest if there are several."""
    if organization_id:
        return find_organization(installation.database, organization_id).id
    infos = list_organizations(installation.database)
    return only_one("organization", [(info.id, info.name) for info in infos])


def _post(
    ctx: click.Context, kind: LedgerKind, amount: str, organization: str | None, note: str, reference: str
) -> None:
    installation = ctx.with_resource(opened())
    chosen = choose_organization(installation, organization)
    posting = Posting(kind, read_usd(amount), note, reference)
    posted = Funding(installation.database, installation.control).post_credits(chosen, posting, actor=OPERATOR)
    left = installation.ledger.balance(chosen)
    done = "This reference was already posted; nothing changed"
    if posted:
        done = "Posted"
    print_result(f"{done}. {chosen} {_describe(left)}.", **_facts(chosen, left), posted=posted)


def _describe(left: Balance) -> str:
    if left.unlimited:
        return "is unlimited"
    return f"has {format_usd(left.balance_nusd)} USD"


def _facts(organization: str, left: Balance) -> dict[str, object]:
    return {"organization": organization, "balance_usd": format_usd(left.balance_nusd), "unlimited": left.unlimited}
