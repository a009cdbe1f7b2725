"""`models`: the models that the key may call."""

from typing import Any

import click

from llmgateway_cli.catalogue import (
    Entry,
    ModelFilter,
    capabilities_of,
    known_capabilities,
    providers_of,
    read_models,
)
from llmgateway_cli.context import ClientContext, json_option, pass_context
from llmgateway_cli.errors import CliError
from llmgateway_cli.tables import Column
from llmgateway_cli.values import NO_VALUE, show_number

PER_MILLION = 1_000_000
COLUMNS = (
    Column("MODEL", shorten=True),
    Column("CAN", shorten=True),
    Column("PROVIDERS", shorten=True),
    Column("CONTEXT", number=True),
    Column("$/M IN", number=True),
    Column("$/M OUT", number=True),
)


@click.command()
@click.option("-c", "--capability", default="", help="Only models that can do this, e.g. image, tools or vision.")
@click.option("-p", "--provider", default="", help="Only models of this provider, e.g. openai.")
@click.option("-s", "--search", default="", help="Only models with this text in their id, name or aliases.")
@click.option("--available", is_flag=True, help="Only models that can be called now with the service's credentials.")
@json_option
@pass_context
def models(context: ClientContext, capability: str, provider: str, search: str, available: bool) -> None:
    """List models. With an API key, list the models that the key can call."""
    entries = read_models(context.client, available=available)
    known = known_capabilities(entries)
    if capability and capability.lower() not in known:
        raise CliError(f"No model has the capability {capability!r}.", f"Known: {', '.join(known)}.")
    chosen = ModelFilter(capability, provider, search)
    shown = [entry for entry in entries if chosen.shows(entry)]
    if context.output.as_json:
        context.output.document(shown)
        return
    if not shown:
        context.output.info("No model matches. Leave out a filter, or run `llmgateway models` without any.")
        return
    context.output.table(COLUMNS, [row_of(entry) for entry in shown])
    context.output.info(f"{len(shown)} of {len(entries)} models.")


def row_of(entry: Entry) -> tuple[str, ...]:
    """Return the row of a model; prices are dollars per million tokens."""
    pricing = entry.get("pricing") or {}
    return (
        entry["id"],
        ", ".join(sorted(capabilities_of(entry) - {"streaming"})),
        ", ".join(providers_of(entry)),
        show_number(entry.get("context_length") or None),
        _per_million(pricing.get("prompt")),
        _per_million(pricing.get("completion")),
    )


def _per_million(price: Any) -> str:
    try:
        dollars = float(price or 0) * PER_MILLION
    except (TypeError, ValueError):
        dollars = 0.0
    if dollars == 0:
        return NO_VALUE
    return f"{dollars:.2f}"
