"""`rules`: access rules of organizations, teams, members and keys."""

import json

import click

from gateway.accounts import rules as accounts
from gateway.accounts.changes import OPERATOR
from gateway.accounts.models import Scope
from gateway.accounts.rule_values import READERS, SCOPES
from gateway.operator.installation_commands import check_scope, opened
from gateway.operator.output import AS_JSON, print_result, print_table, read_object


@click.group()
def rules() -> None:
    """Access rules."""


@rules.command("list")
@AS_JSON
@click.argument("organization_id")
@click.option("--scope", type=click.Choice(SCOPES), help="Only rules of this scope.")
@click.option("--id", "scope_id", help="Only rules of this team, member or key.")
@click.pass_context
def list_(ctx: click.Context, organization_id: str, scope: str | None, scope_id: str | None) -> None:
    """List an organization's rules, oldest first."""
    installation = ctx.with_resource(opened())
    check_scope(installation, organization_id)
    found = accounts.list_rules(installation.database, organization_id, scope or "", scope_id or "")
    rows = [
        (one.id, "on" if one.active else "off", one.scope, one.scope_id, one.type, json.dumps(one.value))
        for one in found
    ]
    print_table(("ID", "STATE", "SCOPE", "OF", "TYPE", "VALUE"), rows, "There are no rules.")


@rules.command()
@AS_JSON
@click.argument("scope", type=click.Choice(SCOPES))
@click.argument("scope_id")
@click.argument("type_", metavar="TYPE", type=click.Choice(list(READERS)))
@click.argument("value")
@click.pass_context
def add(ctx: click.Context, scope: Scope, scope_id: str, type_: str, value: str) -> None:
    """Add a rule. VALUE is JSON: {"models": […]}, {"providers": […]}, {"ipCidrs": […]}, or pricingType, maxInputPrice
    and maxOutputPrice (USD per token)."""
    installation = ctx.with_resource(opened())
    owner = installation.database.read(lambda: accounts.organization_of(scope, scope_id))
    made = accounts.add_rule(
        installation.database,
        installation.control,
        scope,
        scope_id,
        type_,
        read_object(value),
        actor=OPERATOR,
        known=installation.names_known_to(owner),
    )
    print_result(made.id, id=made.id)


@rules.command()
@AS_JSON
@click.argument("organization_id")
@click.argument("rule_id")
@click.argument("state", type=click.Choice(["on", "off"]))
@click.pass_context
def switch(ctx: click.Context, organization_id: str, rule_id: str, state: str) -> None:
    """Switch a rule on or off."""
    installation = ctx.with_resource(opened())
    accounts.set_rule_active(
        installation.database, installation.control, organization_id, rule_id, state == "on", actor=OPERATOR
    )
    print_result(f"{rule_id} is {state}.", id=rule_id, state=state)


@rules.command()
@AS_JSON
@click.argument("organization_id")
@click.argument("rule_id")
@click.pass_context
def remove(ctx: click.Context, organization_id: str, rule_id: str) -> None:
    """Delete a rule."""
    installation = ctx.with_resource(opened())
    accounts.remove_rule(installation.database, installation.control, organization_id, rule_id, actor=OPERATOR)
    print_result(f"{rule_id} was removed.", id=rule_id, removed=True)
