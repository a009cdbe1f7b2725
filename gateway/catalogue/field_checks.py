"""Checks and conversions of fields in catalogue files; every mistake is recorded, and none stops the reading."""

import dataclasses
import re
from collections.abc import Callable
from datetime import date
from functools import cache
from operator import attrgetter
from typing import Any, get_args

from gateway.catalogue.base_urls import problem_of
from gateway.catalogue.entries import (
    PROTOCOLS,
    RATE_NAMES,
    TABLE_RATES,
    DataPolicy,
    Mapping,
    Model,
    Peak,
    Prices,
    Provider,
    Stability,
    Tier,
    TokenRates,
)
from gateway.catalogue.prices import EPOCH_DAY
from gateway.configuration.setting_checks import suggest_similar
from gateway.money import price_per_million, read_decimal
from gateway.neutral import operations
from gateway.neutral.parameters import PARAMETERS
from gateway.neutral.units import TOOL_UNITS

# The quirks that catalogue entries may name: small adjustments of a request for one provider.
#
# Implementations are in `providers/quirks.py` and beside it, and in the packages of the formats.

# Those that do more than remove a parameter.
ADJUSTMENTS = frozenset((
    *("adaptive_thinking", "alternating_roles", "answer_between", "api_version_query", "basic_reasoning_effort"),
    *("beta_completions",),
    *("compatible", "content_null_required", "content_text_required", "deployment_path", "details_by_list"),
    *("details_by_show", "developer_as_system", "drop_penalties", "effort_alone", "enable_thinking"),
    *("fim_completions", "inline_media", "known_members", "late_instructions_as_user", "marked_prefix"),
    *("max_tokens_old_name", "no_cache_breakpoints", "no_format_with_tools", "no_max_tool_calls", "no_names"),
    *("no_parallel_tool_calls", "no_reasoning_effort", "no_sampling", "no_stop", "no_stream_options", "no_strict"),
    *("no_usage_in_stream", "no_user", "no_verbosity", "none_or_default_effort", "none_or_high_effort", "one_stop"),
    *("parameters_required", "parsed_reasoning", "plain_media", "plain_tools", "reasoning_as_details"),
    *("reasoning_content_required",),
    *("replay_reasoning", "required_as_any", "sends_cache_key", "sends_prompt_cache", "sends_sensitive_word_check"),
    *("short_call_ids",),
    *("split_reasoning", "streamed_tool_arguments", "system_as_user", "template_thinking", "text_as_string"),
    *("think_tags", "thinking_and_effort", "thinking_needs_stream", "thinking_parts", "thinking_switch"),
    *("tool_choice_auto", "vertex_raw_predict"),
))  # fmt: skip


def known_quirks() -> frozenset[str]:
    """Return the name of every quirk."""
    return ADJUSTMENTS.union(*(row.quirks for row in PARAMETERS.values()))


MODEL_ID = re.compile(r"[a-z0-9][a-z0-9._:@+-]*")
PROVIDER_ID = re.compile(r"[a-z0-9][a-z0-9.-]*")
SPAN = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
WEEK = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DATES = frozenset(("released", "deprecated", "deactivated", "checked"))
TOOL_RATES = frozenset(unit.price for unit in TOOL_UNITS)

Convert = Callable[[Any], Any]


@cache
def required_fields(kind: type) -> tuple[str, ...]:
    """Return the fields of an entry that have no default."""
    missing = dataclasses.MISSING
    return tuple(
        field.name
        for field in dataclasses.fields(kind)
        if field.init and field.default is missing and field.default_factory is missing
    )


def read_fields(
    kind: type, raw: dict[str, Any], where: Callable[[str], str], problems: list[str], also: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the known fields of `raw`, converted to the types of `kind`.

    Unknown and invalid fields are added to `problems`, with their location from `where`. `also`: further names to
    suggest.
    """
    converters = CONVERTERS[kind]
    ready: dict[str, Any] = {}
    for name, value in raw.items():
        convert = converters.get(name)
        if convert is None:
            problems.append(f"{where(name)}: unknown field {name}{suggest_similar(name, (*converters, *also))}")
            continue
        try:
            ready[name] = convert(value)
        except ValueError as error:
            problems.append(f"{where(name)}: {name}: {error}")
    return ready


def read_prices(value: Any) -> tuple[Prices, ...]:
    """Parse one price table or a list of dated ones, oldest first. Raise ValueError."""
    lists = [_read_price_list(item) for item in (value if isinstance(value, list) else [value])]
    dates = [item.from_date for item in lists]
    if len(set(dates)) != len(dates):
        raise ValueError("two price lists begin on the same day")
    return tuple(sorted(lists, key=attrgetter("from_date")))


def _read_price_list(value: Any) -> Prices:
    raw = dict(_table(value))
    from_date = _date(raw.pop("from", ""))
    tiers = raw.pop("tiers", [])
    peaks = raw.pop("peaks", [])
    if tiers and peaks:
        raise ValueError("tiers and peaks in one price list")
    base = _read_rates(raw)
    return Prices(
        base=TokenRates(**base),
        tiers=_read_tiers(tiers, base),
        peaks=tuple(_read_peak(item, base) for item in peaks),
        from_date=from_date,
    )


def _read_rates(raw: dict[str, Any]) -> dict[str, Any]:
    ready: dict[str, Any] = {}
    for name, value in raw.items():
        if name not in RATE_NAMES:
            raise ValueError(f"unknown price {name}{suggest_similar(name, RATE_NAMES)}")
        if name in TABLE_RATES:
            ready[name] = {key: price_per_million(_text(price)) for key, price in _table(value).items()}
        else:
            ready[name] = price_per_million(_text(value))
    return ready


def _read_tiers(items: list[Any], base: dict[str, Any]) -> tuple[Tier, ...]:
    """Parse tiers in rising order; missing prices are the base's. Only the last tier may have no end."""
    tiers = []
    for item in items:
        raw = dict(_table(item))
        up_to = raw.pop("up_to", None)
        tiers.append(Tier(None if up_to is None else _integer(up_to), TokenRates(**(base | _read_rates(raw)))))
    ends = [tier.up_to for tier in tiers]
    if any(end is None for end in ends[:-1]) or sorted(end for end in ends if end is not None) != [
        end for end in ends if end is not None
    ]:
        raise ValueError("tiers must rise by up_to, and only the last may have no end")
    return tuple(tiers)


def _read_peak(item: Any, base: dict[str, Any]) -> Peak:
    raw = dict(_table(item))
    span = SPAN.fullmatch(_text(raw.pop("utc", "")))
    if span is None:
        raise ValueError('a peak needs utc = "HH:MM-HH:MM"')
    hours = [int(part) for part in span.groups()]
    days = _read_days(_text(raw.pop("days", "mon-sun")))
    holidays = frozenset(date.fromisoformat(_date(day)).toordinal() - EPOCH_DAY for day in _list(raw.pop("except", [])))
    rates = TokenRates(**(base | _read_rates(raw)))
    return Peak(hours[0] * 60 + hours[1], hours[2] * 60 + hours[3], rates, days, holidays)


def _read_days(text: str) -> frozenset[int]:
    """Parse days of the week from "mon-fri" or "sun"."""
    first, _, last = text.partition("-")
    if first not in WEEK or (last or first) not in WEEK:
        raise ValueError(f'days are such as "mon-fri" or "sun", not "{text}"')
    start = WEEK.index(first)
    end = WEEK.index(last or first)
    return frozenset((start + offset) % len(WEEK) for offset in range((end - start) % len(WEEK) + 1))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text, got {value!r}")
    return value


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"expected a whole number, got {value!r}")
    return value


def _optional_integer(value: Any) -> int | None:
    if value is None:
        return None
    return _integer(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ValueError(f"expected a number, got {value!r}")
    return float(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, got {value!r}")
    return value


def _date(value: Any) -> str:
    """Return a TOML date or "YYYY-MM-DD" as text; "" is kept."""
    if isinstance(value, date):
        return value.isoformat()[:10]
    text = _text(value)
    if text:
        date.fromisoformat(text)
    return text


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"expected a table, got {value!r}")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"expected a list, got {value!r}")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple):
        raise ValueError(f"expected a list of texts, got {value!r}")
    return tuple(_text(item) for item in value)


def _integers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise ValueError(f"expected a list of numbers, got {value!r}")
    return tuple(_integer(item) for item in value)


def _text_table(value: Any) -> dict[str, str]:
    return {key: _text(item) for key, item in _table(value).items()}


def _multipliers(value: Any) -> dict[str, str]:
    """Parse service tiers: a table tier → multiplier, or a list of tiers with the provider's own multipliers ("")."""
    if isinstance(value, list):
        return {name: "" for name in _texts(value)}
    table = _text_table(value)
    for name, text in table.items():
        try:
            valid = read_decimal(text) > 0
        except ValueError:
            valid = False
        if not valid:
            raise ValueError(f"{name} is not a multiplier: {text!r}")
    return table


def _operations(value: Any) -> tuple[str, ...]:
    names = _texts(value)
    known = operations.names()
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        meant = suggest_similar(unknown[0], known) if unknown else ""
        raise ValueError(f"unknown operation {', '.join(unknown) or 'none'}; known: {', '.join(known)}{meant}")
    return names


def _policy_location(name: str) -> str:
    return "data policy"


def _data_policy(value: Any) -> DataPolicy:
    problems: list[str] = []
    ready = read_fields(DataPolicy, _table(value), _policy_location, problems)
    if problems:
        raise ValueError("; ".join(problems))
    return DataPolicy(**ready)


def _tool_prices(value: Any) -> dict[str, Any]:
    unknown = sorted(set(_table(value)) - TOOL_RATES)
    if unknown:
        raise ValueError(f"unknown tool {', '.join(unknown)}; known: {', '.join(sorted(TOOL_RATES))}")
    return _read_rates(value)


def _tool_prices_of(value: Any) -> dict[str, Any]:
    return {pattern: _tool_prices(prices) for pattern, prices in _table(value).items()}


def _count_table(value: Any) -> dict[str, int]:
    return {name: _integer(count) for name, count in _table(value).items()}


def _price(value: Any) -> int:
    return price_per_million(_text(value))


def _protocol(value: Any) -> str:
    text = _text(value)
    if text and text not in PROTOCOLS:
        raise ValueError(f"unknown protocol {text!r}; known: {', '.join(PROTOCOLS)}{suggest_similar(text, PROTOCOLS)}")
    return text


def _quirks(value: Any) -> tuple[str, ...]:
    names = _texts(value)
    known = known_quirks()
    wrong = [f"unknown quirk {name!r}{suggest_similar(name, known)}" for name in names if name not in known]
    if wrong:
        raise ValueError("; ".join(wrong))
    return names


def _address(value: Any) -> str:
    text = _text(value)
    if text and (problem := problem_of(text)):
        raise ValueError(f"not an address: {text!r} ({problem})")
    return text.rstrip("/")


def _stability(value: Any) -> str:
    text = _text(value)
    known = get_args(Stability)
    if text not in known:
        raise ValueError(f"unknown stability {text!r}; known: {', '.join(known)}{suggest_similar(text, known)}")
    return text


def _model_id(value: Any) -> str:
    text = _text(value)
    if not MODEL_ID.fullmatch(text):
        raise ValueError(f"{text!r} is not an id: lower-case letters, digits and . _ : @ + - only")
    return text


BY_TYPE: dict[Any, Convert] = {
    str: _text, int: _integer, float: _number, bool: _flag, tuple[str, ...]: _texts, tuple[int, ...]: _integers,
    dict[str, str]: _text_table, dict[str, Any]: _table, bool | None: _flag, int | None: _optional_integer,
    dict[str, int]: _count_table, DataPolicy: _data_policy, Stability: _stability, tuple[Prices, ...]: read_prices,
}  # fmt: skip
BY_NAME: dict[str, Convert] = {
    **dict.fromkeys(DATES, _date),
    "service_tiers": _multipliers, "operations": _operations, "protocol": _protocol, "address": _address,
    "quirks": _quirks,
    "model": _model_id, "search_price": _price, "tool_prices": _tool_prices,
    "tool_prices_of": _tool_prices_of,
}  # fmt: skip
NOT_IN_FILES = {Model: {"mappings"}, Mapping: set(), Provider: set(), DataPolicy: set()}
CONVERTERS: dict[type, dict[str, Convert]] = {
    kind: {
        f.name: BY_NAME.get(f.name) or BY_TYPE[f.type]
        for f in dataclasses.fields(kind)
        if f.init and f.name not in hidden
    }
    for kind, hidden in NOT_IN_FILES.items()
}
