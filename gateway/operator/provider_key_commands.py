"""`provider-keys`: an organization's own provider keys."""

import click

from gateway.accounts.provider_keys import ProviderKeys
from gateway.operator.derived_commands import make_group
from gateway.operator.installation_commands import opened
from gateway.operator.output import AS_JSON, print_result

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
    print_result(f"{count} keys are encrypted with the newest key.", keys=count)
