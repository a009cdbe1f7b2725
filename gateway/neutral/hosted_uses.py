"""The uses of a request at a provider beside its model: tools that it runs, further models, stored objects."""

import re
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from msgspec import structs

from gateway.errors import InvalidRequest
from gateway.neutral.parts import WEB
from gateway.neutral.units import UNITS
from gateway.neutral.usage import NO_USAGE, Usage

# How a use is paid for: by the tokens of the request, by units or the tokens of another model, in a way that the
# gateway does not know, or not at all, because it is an object that the provider stores.
Payment = Literal["tokens", "units", "unknown", "object"]
MAX_USES = 256
LONG_PROMPT = 200_000  # tokens of a prompt up to which a tool's model has its ordinary price
LONG = " long"
BLOCK_S = 300  # seconds of a container that are billed as one unit where the provider bills time
# Counts of the tokens of a model that a tool calls, by the counts of the model's own usage.
TOOL_MODEL_COUNTS = {
    "input": "tool_model_input",
    "cache_read": "tool_model_cache_read",
    "cache_write": "tool_model_cache_write",
    "cache_write_1h": "tool_model_cache_write_1h",
    "output": "tool_model_output",
}


class HostedUse(NamedTuple):
    """One such use. `vendor` is the dialect of its vendor: other vendors' targets do without it ("": all have it).

    `name` is the member or type in the request. `billed` are the counts of Usage that need a price; readers of answers
    report the uses as `reported`, of which each is `times` units of the first billed one (for containers, of each
    BLOCK_S if `timed`). `most` is the most uses in one answer, `output` the most tokens of each that `models` write,
    the further models that it names. `ident` is the id of a container, which the organization that got it may name,
    `voice` that of a voice, which may be one that the vendor offers to everyone.
    """

    vendor: str
    name: str
    payment: Payment
    billed: tuple[str, ...] = ()
    reported: str = ""
    times: int = 1
    timed: bool = False
    most: int = 1
    models: tuple[str, ...] = ()
    output: int = 0
    ident: str = ""
    voice: str = ""


# Schemes and hosts of files that a provider stores for the account which calls it.
STORAGE_SCHEMES = ("gs://", "s3://")
STORAGE_HOSTS = ("generativelanguage.googleapis.com",)
LONGEST_SCHEME = len("https://")
NO_USES: tuple[HostedUse, ...] = ()
# Tokens of one use of a tool that is billed by those of its model.
TOKENS_A_USE = {unit.count: unit.maximum for unit in UNITS if unit.billed == "model" and unit.maximum}
DATE = re.compile(r"-(?:latest|\d{8}|\d{4}-\d{2}-\d{2})$")


def is_stored(address: str) -> bool:
    """Return whether an address is that of a file which a provider stores for the account that calls it."""
    scheme = address[:LONGEST_SCHEME].lower()
    if scheme.startswith(STORAGE_SCHEMES):
        return True
    if not scheme.startswith(WEB):
        return False
    try:
        return (urlsplit(address).hostname or "") in STORAGE_HOSTS
    except ValueError:
        return False


def collect(found: list[HostedUse]) -> tuple[HostedUse, ...]:
    """Return the different uses of a request. InvalidRequest for more than MAX_USES: each candidate checks them."""
    if not found:
        return NO_USES
    uses = tuple(dict.fromkeys(found))
    if len(uses) > MAX_USES:
        text = f"A request may name at most {MAX_USES} different hosted tools, further models and stored objects."
        raise InvalidRequest(text, param="tools")
    return uses


def price_key_of(model: str, prompt_tokens: int) -> str:
    """Return the key of a model's prices among those of a tool's models; long prompts have their own."""
    if prompt_tokens > LONG_PROMPT:
        return undated(model) + LONG
    return undated(model)


def undated(model: str) -> str:
    """Return the name of a model without the date of its version."""
    return DATE.sub("", model)


def most_units(uses: tuple[HostedUse, ...]) -> Usage:
    """Return the most units of an answer, without the tokens of further models."""
    counts: dict[str, int] = {}
    for use in uses:
        if use.payment == "units" and not use.output:
            for name in use.billed:
                counts[name] = counts.get(name, 0) + use.most * use.times * TOKENS_A_USE.get(name, 1)
    if counts:
        key = next((undated(model) for use in uses for model in use.models), "")
        return structs.replace(NO_USAGE, **counts, price_key=key)
    return NO_USAGE


def most_model_tokens(use: HostedUse, prompt_tokens: int) -> Usage:
    """Return the most tokens of the model that a tool calls: each time it reads the prompt and what was written so
    far."""
    each = prompt_tokens + use.output
    read = use.most * each
    key = price_key_of(use.models[0], each) if use.models else ""
    return structs.replace(
        NO_USAGE, tool_model_cache_write_1h=read, tool_model_output=use.most * use.output, price_key=key
    )


def as_billed(usage: Usage, uses: tuple[HostedUse, ...], seconds: float) -> Usage:
    """Return the usage of an answer in the units that the request's tools are billed by. The answer took `seconds`."""
    changes: dict[str, Any] = {}
    for use in uses:
        if use.output and use.models and not usage.price_key and usage.tool_model_output:  # type: ignore[attr-defined]
            changes["price_key"] = price_key_of(use.models[0], usage.tool_model_input)  # type: ignore[attr-defined]
        if not use.reported or use.reported in changes:
            continue
        counted = getattr(usage, use.reported)
        billed = use.billed[0] if use.billed else ""
        times = use.times * (max(1, -(-int(seconds) // BLOCK_S)) if use.timed else 1)
        if not counted or (billed == use.reported and times == 1):
            continue
        changes[use.reported] = 0
        if billed:
            changes[billed] = counted * times
    if changes:
        return structs.replace(usage, **changes)
    return usage
