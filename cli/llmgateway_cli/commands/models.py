"""`models`: the models that the key may call."""

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import click

from llmgateway_cli.catalogue import (
    Entry,
    ModelFilter,
    capabilities_of,
    check_provider,
    known_capabilities,
    providers_of,
    read_models,
)
from llmgateway_cli.command_lines import ClientCommand, suggestion
from llmgateway_cli.context import ClientContext, json_option, pass_context
from llmgateway_cli.errors import CliError
from llmgateway_cli.tables import Column
from llmgateway_cli.values import NO_VALUE, amount_text, show_many, show_number

PER_MILLION = 1_000_000
COLUMNS = (
    Column("MODEL", shorten=True),
    Column("CAN", shorten=True, rank=3),
    Column("PROVIDERS", shorten=True, rank=2),
    Column("CONTEXT", number=True, rank=1),
    Column("$/M IN", number=True),
    Column("$/M OUT", number=True),
)


@click.command(cls=ClientCommand)
@click.option(
    "-c",
    "--capability",
    multiple=True,
    help="Only models that can do this, e.g. image or vision; repeated: all of it.",
)
@click.option("-p", "--provider", multiple=True, help="Only models of this provider, e.g. openai; repeated: of any.")
@click.option("-s", "--search", multiple=True, help="Only models with this text in their id, name or aliases.")
@click.option("--available", is_flag=True, help="Only models that can be called now with the service's credentials.")
@json_option
@pass_context
def models(
    context: ClientContext,
    capability: Sequence[str],
    provider: Sequence[str],
    search: Sequence[str],
    available: bool,
) -> None:
    """List models. With an API key, list the models that the key can call."""
    entries = read_models(context.client, available=available)
    known = known_capabilities(entries)
    for name in capability:
        if name.lower() not in known:
            near = suggestion(name, known)
            raise CliError(f"No model has the capability {name!r}.{near}", f"Known: {', '.join(known)}.")
    for name in provider:
        check_provider(entries, name)
    chosen = ModelFilter(capability, provider, search)
    shown = [entry for entry in entries if chosen.shows(entry)]
    if context.output.as_json:
        context.output.document(shown)
        return
    if not shown:
        context.output.info("No model matches. Leave out a filter, or run `llmgateway models` without any.")
        return
    context.output.table(COLUMNS, [row_of(entry) for entry in shown])
    hint = "" if available else " --available shows those that can be called now."
    context.output.info(f"{len(shown)} of {show_many(len(entries), 'model')}.{hint}")


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
        dollars = Decimal(str(price or 0)) * PER_MILLION
    except InvalidOperation:
        dollars = Decimal(0)
    if not dollars.is_finite() or dollars <= 0:
        return NO_VALUE
    return amount_text(dollars)
