"""`provider-keys` and `custom-providers`: an organization's own provider keys and custom providers."""

import sys
from typing import Any

import click

from gateway.accounts.access import CUSTOM
from gateway.accounts.changes import OPERATOR
from gateway.accounts.custom_providers import CustomProviders, read_provider_caps
from gateway.accounts.provider_keys import ProviderKeyChange, ProviderKeyDraft, ProviderKeys
from gateway.admin.key_use import MOST_SHOWN, find_key_use, summarize_use, switch_command
from gateway.configuration.names import near
from gateway.errors import InvalidRequest
from gateway.limits.budgets import Budgets
from gateway.money import format_usd
from gateway.operator.installation_commands import Installation, check_scope, opened
from gateway.operator.output import AS_JSON, print_result, print_table, read_usd

HEADER = ("ID", "PROVIDER", "STATUS", "KEY", "REGION", "ADDRESS", "LABEL", "MAX SPEND", "SPENT")


@click.group("provider-keys")
def provider_keys() -> None:
    """An organization's own provider keys."""


@provider_keys.command("list")
@AS_JSON
@click.argument("organization_id")
@click.pass_context
def list_keys(ctx: click.Context, organization_id: str) -> None:
    """List keys, oldest first. SPENT is counted only while a key has a spending limit."""
    installation = ctx.with_resource(opened())
    check_scope(installation, organization_id)
    found = _keys(installation).list_keys(organization_id)
    states = _budgets(installation).statuses(one.id for one in found)
    rows = [
        (one.id, one.provider, one.status, one.mask, one.region, one.base_url, one.label)
        + (_show_usd(one.max_spend_nusd), _show_usd(states[one.id].usage_nusd))
        for one in found
    ]
    print_table(HEADER, rows, "There are no keys.")


@provider_keys.command("add")
@AS_JSON
@click.argument("organization_id")
@click.argument("provider")
@click.option("--label", default="", help="Name in lists.")
@click.option("--base-url", default="", help="Base URL for this key, if different from the provider's.")
@click.option("--region", default="", help="The provider's region for this key.")
@click.option("--model", "allowed_models", multiple=True, help="Use the key for this model only; may be repeated.")
@click.option("--max-spend", help="Spending limit in USD; the key is skipped when it is reached.")
@click.pass_context
def add_key(ctx: click.Context, organization_id: str, provider: str, max_spend: str | None, **given: Any) -> None:
    """Store a key. It is read from standard input, because arguments are visible in the process list."""
    if max_spend:
        bound = read_usd(max_spend)
    else:
        bound = None
    secret = sys.stdin.readline().strip()
    draft = ProviderKeyDraft(provider, secret, max_spend_nusd=bound, **given)
    installation = ctx.with_resource(opened())
    own = {one.provider_id for one in _providers(installation).list_providers(organization_id)}
    known = own | {CUSTOM} | installation.catalogue.providers.keys()
    if provider not in known:
        raise InvalidRequest(f"There is no provider {provider}{near(provider, known)}")
    made = _keys(installation).add(organization_id, draft, actor=OPERATOR)
    use = find_key_use(installation.database, organization_id)
    commands = [switch_command(one) for one in use.unused_by[:MOST_SHOWN]]
    print_result(
        "\n".join([made.id, f"{made.mask}: {summarize_use(use)}", *(f"  {line}" for line in commands)]),
        id=made.id,
        key=made.mask,
        used_by=[one.id for one in use.used_by],
        unused_by=[one.id for one in use.unused_by],
        switch_commands=commands,
    )


@provider_keys.command("limit")
@AS_JSON
@click.argument("organization_id")
@click.argument("key_id")
@click.argument("amount")
@click.pass_context
def limit_key(ctx: click.Context, organization_id: str, key_id: str, amount: str) -> None:
    """Limit the total spending with a key to AMOUNT USD; none removes the limit."""
    change = ProviderKeyChange(bounded=True, max_spend_nusd=None if amount == "none" else read_usd(amount))
    made = _keys(ctx.with_resource(opened())).update(organization_id, key_id, change, actor=OPERATOR)
    bound = _show_usd(made.max_spend_nusd)
    print_result(f"{key_id}: {bound or 'no limit'}.", id=key_id, max_spend_usd=bound)


@provider_keys.command("switch")
@AS_JSON
@click.argument("organization_id")
@click.argument("key_id")
@click.argument("state", type=click.Choice(["on", "off"]))
@click.pass_context
def switch_key(ctx: click.Context, organization_id: str, key_id: str, state: str) -> None:
    """Switch a key on or off."""
    _keys(ctx.with_resource(opened())).set_active(organization_id, key_id, state == "on", actor=OPERATOR)
    print_result(f"{key_id} is {state}.", id=key_id, state=state)


@provider_keys.command("remove")
@AS_JSON
@click.argument("organization_id")
@click.argument("key_id")
@click.pass_context
def remove_key(ctx: click.Context, organization_id: str, key_id: str) -> None:
    """Remove a key and destroy its secret."""
    _keys(ctx.with_resource(opened())).remove(organization_id, key_id, actor=OPERATOR)
    print_result(f"{key_id} was removed.", id=key_id, removed=True)


@provider_keys.command("reseal")
@AS_JSON
@click.pass_context
def reseal(ctx: click.Context) -> None:
    """Encrypt all keys and the secrets of callbacks, alerts and second factors again, with the newest encryption key.

    An older encryption key can be removed when the payloads, stored responses and videos of its time are deleted.
    """
    count = _keys(ctx.with_resource(opened())).reseal()
    print_result(f"{count} keys are encrypted with the newest key.", keys=count)


@click.group("custom-providers")
def custom_providers() -> None:
    """Custom providers of one organization."""


@custom_providers.command("list")
@AS_JSON
@click.argument("organization_id")
@click.pass_context
def list_providers(ctx: click.Context, organization_id: str) -> None:
    """List custom providers, oldest first."""
    installation = ctx.with_resource(opened())
    check_scope(installation, organization_id)
    found = _providers(installation).list_providers(organization_id)
    rows = [(one.name, one.base_url, ", ".join(model["id"] for model in one.models) or "all") for one in found]
    print_table(("NAME", "ADDRESS", "MODELS"), rows, "There are no custom providers.")


@custom_providers.command("add")
@AS_JSON
@click.argument("organization_id")
@click.argument("name")
@click.argument("base_url")
@click.option("--model", "models", multiple=True, help="Id of a model of this provider; may be repeated. Default: all.")
@click.pass_context
def add_provider(ctx: click.Context, organization_id: str, name: str, base_url: str, models: tuple[str, ...]) -> None:
    """Add a custom provider; its key is added with `provider-keys add <organization> custom:<name>`."""
    entries = [{"id": model} for model in models]
    installation = ctx.with_resource(opened())
    built_in = installation.catalogue.providers
    made = _providers(installation).add(organization_id, name, base_url, entries, actor=OPERATOR, built_in=built_in)
    print_result(made.provider_id, id=made.provider_id)


@custom_providers.command("remove")
@AS_JSON
@click.argument("organization_id")
@click.argument("name")
@click.pass_context
def remove_provider(ctx: click.Context, organization_id: str, name: str) -> None:
    """Remove a custom provider and its keys."""
    _providers(ctx.with_resource(opened())).remove(organization_id, name, actor=OPERATOR)
    print_result(f"{name} was removed.", name=name, removed=True)


def _keys(installation: Installation) -> ProviderKeys:
    write_bound = _budgets(installation).write_bound
    return ProviderKeys(installation.database, installation.control, installation.vault, write_bound)


def _budgets(installation: Installation) -> Budgets:
    return Budgets(installation.database, installation.control)


def _providers(installation: Installation) -> CustomProviders:
    caps = read_provider_caps(installation.settings.limits)
    return CustomProviders(installation.database, installation.control, caps)


def _show_usd(nusd: int | None) -> str:
    if nusd is None:
        return ""
    return format_usd(nusd)
