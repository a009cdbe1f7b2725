"""`keys`: API keys. Commands that revoke a token return when every worker rejects it."""

import click

from gateway.accounts import keys as api_keys
from gateway.accounts.changes import OPERATOR
from gateway.operator.derived_commands import make_group
from gateway.operator.installation_commands import opened
from gateway.operator.output import AS_JSON, print_state

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
