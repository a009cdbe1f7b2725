"""Comparison of what a request requires with what a mapping supports."""

import functools
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec import Struct

from gateway.catalogue.entries import Mapping, Model, Provider
from gateway.catalogue.prices import ORDINARY_TIERS
from gateway.errors import NotSupported
from gateway.neutral.chat import Options, Requirements
from gateway.neutral.parameters import CAPABILITIES, PARAMETERS
from gateway.neutral.request import FEATURES, TIERS_JOINED, Feature

UNLIMITED = 1 << 62
CHARACTERS_PER_TOKEN = 4
# No text packs more bytes into a token, so a prompt above this size certainly does not fit.
MAX_BYTES_PER_TOKEN = 10

# Features by their field of Requirements, and the capabilities that parameters need by their name: one bit each.
FLAGS: dict[str, Feature] = {
    **FEATURES,
    **{each.name: Feature(each.name, flag=each.flag, optional=True) for each in CAPABILITIES},
}
BITS: dict[str, int] = {name: 1 << index for index, name in enumerate(FLAGS)}
READ_FLAGS = attrgetter("parameters", *FEATURES)
# Preferences: mappings that fulfil them come first, and a request is never rejected for them. A mapping without them
# gets the request without them (engine/fitting.py).
SOFT = {flag.reason for flag in FLAGS.values() if flag.optional}
# Reason → the request field in chat completions (`dialects/field_names.py` has the names in other dialects).
FIELDS: dict[str, str] = {flag.reason: flag.field for flag in FLAGS.values() if flag.field}
CODES: dict[str, str] = {}


def _reason(text: str, field: str = "", *, soft: bool = False, code: str = "") -> str:
    """Register a reason that has no bit, and return it."""
    if soft:
        SOFT.add(text)
    if field:
        FIELDS[text] = field
    if code:
        CODES[text] = code
    return text


REASONING = FEATURES["reasoning"].reason
MARKS = FEATURES["cache_marks"].reason
IMAGE_OUTPUT = FEATURES["image_output"].reason
EARLIER_IMAGES = FEATURES["earlier_images"].reason
EFFORT = _reason("effort", soft=True)
TIER = _reason("service tier", soft=True)
COUNT_REASON = _reason("n", "n")
SPLIT = _reason("n in one call", soft=True)
OUTPUT = _reason("max_tokens", soft=True)
CONTEXT = _reason("context", "messages", code="context_length_exceeded")
TOOL_CHOICE = _reason("tool choice", "tool_choice")
VENDOR = _reason("a file, tool or part of another vendor", "messages")
FULL = _reason("context (estimated)", soft=True)
ROOM = _reason("room for max_tokens", soft=True)
OWN_PARTS = _reason("parts of another vendor in earlier turns", soft=True)
HOSTED = _reason("hosted tools", soft=True)
OFFERED_SEARCH = _reason("offered web search", soft=True)
UNSUPPORTED = "model_not_supported"
# The quirk of catalogue entries that accept no forced tool.
NO_FORCED_CHOICE = "tool_choice_auto"
UNFORCED = frozenset(("auto",))
MAX_CALLS = 128  # calls for one request with several choices
MAX_COMBINATIONS = 5  # combinations that an error message lists


class Ability(Struct, frozen=True):
    """The capabilities of one mapping, compiled for fast comparison. Unknown limits are UNLIMITED."""

    bits: int
    max_output: int
    context: int
    max_n: int  # choices of one call
    max_streamed_n: int
    efforts: frozenset[str]  # empty: unknown
    tiers: frozenset[str]
    tool_choices: frozenset[str]  # empty: unknown
    dialect: str
    json_by_prompt: bool  # JSON mode is emulated by the prompt, so the response may contain other text
    second: str = ""  # dialect of its second protocol


class Demand(NamedTuple):
    """The requirements of one request. `plain`: only bits and sizes matter."""

    bits: int
    max_tokens: int
    tokens: int  # estimated prompt tokens
    min_tokens: int  # minimum number of prompt tokens
    plain: bool
    n: int
    effort: str
    tier: str
    forced_tool: str
    vendor: str
    hosted: str
    own_parts: str
    search_offered: bool


def read_ability(
    mapping: Mapping,
    model: Model,
    provider: Provider,
    dialect: str = "",
    second: str = "",
    lost: frozenset[str] = frozenset(),
) -> Ability:
    """Compile a mapping.

    `dialect` is that of its protocol ("": the same name as the protocol), `second` that of its second protocol; `lost`
    names the features and capabilities that the first protocol's format cannot express.
    """
    quirks = frozenset(provider.quirks + mapping.quirks)
    offered = {name for name, flag in FLAGS.items() if not flag.flag or getattr(mapping, flag.flag)}
    if not provider.streaming:
        offered.discard("stream")
    if "image" not in model.output_modalities:
        offered.discard("image_output")
    offered -= {name for name, flag in FLAGS.items() if name in lost and not flag.flag}
    offered -= set(_refused(mapping, quirks))
    choices = UNFORCED if NO_FORCED_CHOICE in quirks else frozenset(mapping.supported_tool_choices)
    return Ability(
        bits=sum(BITS[name] for name in offered),
        max_output=mapping.max_output or model.max_output or UNLIMITED,
        context=mapping.context_length or model.context_length or UNLIMITED,
        max_n=mapping.choices_a_call(False) or UNLIMITED,
        max_streamed_n=mapping.choices_a_call(True) or UNLIMITED,
        efforts=frozenset(mapping.reasoning_efforts),
        tiers=frozenset(mapping.service_tiers),
        tool_choices=choices,
        dialect=dialect or mapping.protocol or provider.protocol,
        json_by_prompt="json_object" in lost,
        second=second,
    )


def read_demand(requirements: Requirements, options: Options, default_output: int = 0) -> Demand:
    """Compile a request. `default_output` is the number of output tokens if the caller set no limit."""
    bits = _join_bits(READ_FLAGS(requirements))
    effort = requirements.effort
    tier = options.service_tier
    n = requirements.n
    if effort == "none":
        bits &= ~BITS["reasoning"]
    if requirements.search_offered:
        bits &= ~BITS["web_search"]
    if tier in ORDINARY_TIERS:
        tier = ""
    size = requirements.longest_input or requirements.prompt_bytes
    return Demand(
        bits=bits,
        max_tokens=requirements.max_tokens or default_output,
        tokens=size // CHARACTERS_PER_TOKEN,
        min_tokens=size // MAX_BYTES_PER_TOKEN,
        plain=not (
            effort
            or tier
            or n > 1
            or requirements.forced_tool
            or requirements.vendor_only
            or requirements.hosted
            or requirements.own_parts
            or requirements.search_offered
        ),
        n=n,
        effort=effort,
        tier=tier,
        forced_tool=requirements.forced_tool,
        vendor=requirements.vendor_only,
        hosted=requirements.hosted,
        own_parts=requirements.own_parts,
        search_offered=requirements.search_offered,
    )


def _refused(mapping: Mapping, quirks: frozenset[str]) -> Iterator[str]:
    """Yield the capabilities without a flag that a quirk removes, or that the mapping's list of parameters lacks."""
    listed = mapping.supported_parameters
    for row in PARAMETERS.values():
        capability = row.capability
        if capability is None or capability.flag:
            continue
        if not quirks.isdisjoint(row.quirks) or (listed and row.name not in listed):
            yield capability.name


@functools.lru_cache(maxsize=1 << len(FEATURES))
def _join_bits(flags: tuple[Any, ...]) -> int:
    """Return the bits of the capabilities (first item) and of the features, in their order."""
    capabilities, *features = flags
    names = [*capabilities, *(name for name, required in zip(FEATURES, features, strict=True) if required)]
    return sum(BITS[name] for name in names)


def lacks(ability: Ability, demand: Demand) -> tuple[str, ...]:
    """Return the missing capabilities as reasons of FLAGS and the names next to it; () if the mapping is suitable."""
    absent = demand.bits & ~ability.bits
    fits = demand.max_tokens <= ability.max_output and demand.tokens + demand.max_tokens <= ability.context
    if fits and not absent and demand.plain:
        return ()
    reasons = [flag.reason for name, flag in FLAGS.items() if absent & BITS[name]]
    reasons.extend(_sizes(ability, demand))
    if not demand.plain:
        reasons.extend(_particulars(ability, demand))
    return tuple(reasons)


def missing(
    mapping: Mapping, model: Model, requirements: Requirements, options: Options, provider: Provider, dialect: str = ""
) -> tuple[str, ...]:
    """Return what `mapping` lacks for one request, including preferences (see SOFT)."""
    return lacks(read_ability(mapping, model, provider, dialect), read_demand(requirements, options))


def refuse(requested: str, lacking: Iterable[tuple[str, ...]], of_these: str = "") -> NotSupported:
    """Return the error of a request that no candidate of the model `requested` can serve.

    `lacking` has the reasons of each candidate; `of_these` describes the candidates if they are not all. The message
    names what all of them lack or, if there is no such thing, what each of them lacks.
    """
    sets = [tuple(reason for reason in reasons if reason not in SOFT) or reasons for reasons in lacking]
    shared = [reason for reason in sets[0] if all(reason in other for other in sets)]
    fields = {FIELDS.get(reason, "") for reason in shared}
    param = fields.pop() if len(fields) == 1 else ""
    code = CODES.get(shared[0], UNSUPPORTED) if len(shared) == 1 else UNSUPPORTED
    if shared:
        required = ", ".join(map(_with_field, shared))
        text = f"No provider of {requested} {of_these}supports what the request needs: {required}."
    else:
        either = " / ".join(sorted({", ".join(map(_with_field, reasons)) for reasons in sets})[:MAX_COMBINATIONS])
        text = f"No single provider of {requested} {of_these}supports all that the request needs; they lack: {either}."
    return NotSupported(text, param=param, code=code)


def _with_field(reason: str) -> str:
    """Return a reason with the request field that causes it."""
    field = FIELDS.get(reason, "")
    if field:
        return f"{reason} (`{field}`)"
    return reason


def _sizes(ability: Ability, demand: Demand) -> Iterable[str]:
    if demand.max_tokens > ability.max_output:
        yield OUTPUT
    if demand.min_tokens >= ability.context:
        yield CONTEXT
    elif demand.tokens >= ability.context:
        yield FULL
    if demand.tokens + min(demand.max_tokens, ability.max_output) > ability.context:
        yield ROOM


def _particulars(ability: Ability, demand: Demand) -> Iterable[str]:
    if demand.n > 1:
        a_call = ability.max_streamed_n if demand.bits & BITS["stream"] else ability.max_n
        if demand.n > a_call:
            yield SPLIT if demand.n <= a_call * MAX_CALLS else COUNT_REASON
    # "none" is not a level: each format has its own way to disable or minimize reasoning.
    if demand.effort not in ("", "none") and ability.efforts and demand.effort not in ability.efforts:
        yield EFFORT
    if demand.tier and not ability.tiers.issuperset(demand.tier.split(TIERS_JOINED)):
        yield TIER
    if demand.forced_tool and ability.tool_choices and not _chooses(ability.tool_choices, demand.forced_tool):
        yield TOOL_CHOICE
    for dialect, reason in ((demand.vendor, VENDOR), (demand.hosted, HOSTED), (demand.own_parts, OWN_PARTS)):
        if dialect and dialect not in (ability.dialect, ability.second):
            yield reason
    if demand.search_offered and not ability.bits & BITS["web_search"]:
        yield OFFERED_SEARCH


def _chooses(known: frozenset[str], mode: str) -> bool:
    # A choice of one function is listed under either name.
    return mode in known or (mode == "tool" and "function" in known)
