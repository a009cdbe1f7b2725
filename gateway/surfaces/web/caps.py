"""Limits on what one request may contain, each with its own error; and reading of large bodies in a thread."""

from collections.abc import Callable, Iterable, Sized
from typing import Any, Concatenate, ParamSpec, TypeVar

import orjson
from msgspec import json

from gateway.configuration.settings import LimitSettings
from gateway.errors import InvalidRequest
from gateway.neutral.json_weight import (
    DICTIONARIES,
    LARGE_WITHOUT_PARTS,
    OPENING,
    STRUCTS,
    ByteWeights,
    Marks,
    count_marks,
    has_many,
    has_more,
    takes_long,
    weigh,
)
from gateway.neutral.json_weight import LARGE as LARGE
from gateway.runtime.threads import compute, compute_if, hold_more

P = ParamSpec("P")
T = TypeVar("T")
FEW_PARTS = 500  # messages and parts that are translated in ten milliseconds at most
WEIGHED_FROM = 1 << 14  # bytes of a body from which it is weighed: as many are held without an owner


def read(limits: LimitSettings, raw: bytes, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return `work(raw)` for the body `raw`, which becomes dictionaries.

    Raises InvalidRequest `request_too_complex` for a body with too many parts.
    """
    if len(raw) < WEIGHED_FROM:
        return work(*args, **kwargs)
    slow, _ = _hold_measured(limits, raw, DICTIONARIES)
    return compute_if(slow, work, *args, **kwargs)


def read_measured(
    limits: LimitSettings, raw: bytes, work: Callable[Concatenate[bool, P], T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Return `work(large, …)` as `read` does, where `large` says whether the body is large."""
    slow, large = _hold_measured(limits, raw, DICTIONARIES)
    return compute_if(slow, work, large, *args, **kwargs)


def read_structs(
    limits: LimitSettings, raw: bytes, work: Callable[Concatenate[bool, P], T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Return `work(large, …)` as `read_measured` does, for a body that becomes structs, which take less memory."""
    slow, large = _hold_measured(limits, raw, STRUCTS)
    return compute_if(slow, work, large, *args, **kwargs)


def is_long(raw: bytes, parts: Iterable[Any]) -> bool:
    """Return whether a large body is translated and written in a thread, by the contents of its messages (`parts`).
    Unlike the marks of the text they tell structure from source code, which looks like it."""
    return len(raw) >= LARGE_WITHOUT_PARTS or sum(map(_count, parts)) > FEW_PARTS


def _count(content: Any) -> int:
    return 1 + len(content) if isinstance(content, list) else 1


def _hold_measured(limits: LimitSettings, raw: bytes, weights: ByteWeights) -> tuple[bool, bool]:
    """Count what a body takes once it is decoded and sent, beside its own bytes, until the request ends. Return whether
    it is decoded in a thread, and whether it is large. Overloaded if there is no room; InvalidRequest for too many
    parts."""
    length = len(raw)
    if length < WEIGHED_FROM:
        return False, False
    if length >= LARGE_WITHOUT_PARTS:
        hold_more(compute(_weigh_checked, limits, raw, weights, None))
        return True, True
    marks = count_marks(raw)
    slow = takes_long(marks, length)
    hold_more(compute_if(slow, _weigh_checked, limits, raw, weights, marks))
    return slow, has_many(marks, length)


def _weigh_checked(limits: LimitSettings, raw: bytes, weights: ByteWeights, marks: Marks | None) -> int:
    """Return the bytes of what is decoded from a JSON text. Raise InvalidRequest for one with too many parts: each
    takes memory, and time while no other request is served."""
    if marks is None:
        marks = count_marks(raw)
    opening, commas, _ = marks
    maximum = limits.max_json_nodes
    if 0 < maximum < opening + commas and compute(has_more, raw, maximum):
        raise _too_many("The body", "parts (values, objects and lists)", maximum, "max_json_nodes", "")
    maximum = limits.max_json_containers
    if 0 < maximum < opening and compute(has_more, raw, maximum, OPENING):
        raise _too_many("The body", "objects and lists", maximum, "max_json_containers", "")
    return weigh(raw, weights, marks) - len(raw)


def check(limits: LimitSettings, raw: bytes, messages: Sized | None, tools: Sized | None, *schemas: Any) -> None:
    """Raise InvalidRequest for too many messages or tools and for JSON Schemas that are too large. `tools` and
    `schemas` hold the schemas, in any form that can be written as JSON."""
    if messages is not None and len(messages) > limits.max_messages > 0:
        raise _too_many("The request", "messages", limits.max_messages, "max_messages", "messages")
    if tools is not None and len(tools) > limits.max_tools > 0:
        raise _too_many("The request", "tools", limits.max_tools, "max_tools", "tools")
    if len(raw) > 2 * min(limits.max_schema_nodes or len(raw), limits.max_enum or len(raw)):
        for holder in (tools, *schemas):
            if holder:
                _check_schemas(limits, json.encode(holder))


def check_inputs(limits: LimitSettings, inputs: Sized) -> None:
    """Raise InvalidRequest for too many inputs to embed or moderate, since each input gets an answer of many
    numbers."""
    if len(inputs) > limits.max_inputs > 0:
        raise _too_many("The request", "inputs", limits.max_inputs, "max_inputs", "input")


def is_deeper(raw: bytes, maximum: int) -> bool:
    """Return whether a JSON text nests objects and lists deeper than `maximum` levels."""
    opening = raw.count(b"{") + raw.count(b"[")
    return opening > maximum and compute(_is_deeper, raw, maximum)


def _is_deeper(raw: bytes, maximum: int) -> bool:
    try:
        level = [orjson.loads(raw)]
    except orjson.JSONDecodeError:
        return False
    for _ in range(maximum + 1):
        inner = (node.values() if isinstance(node, dict) else node for node in level if isinstance(node, dict | list))
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
    return bool(level)


def _check_schemas(limits: LimitSettings, text: bytes) -> None:
    nodes = text.count(b"{") + text.count(b"[")
    commas = text.count(b",")
    if not (nodes > limits.max_schema_nodes > 0 or commas >= limits.max_enum > 0):
        return  # too short to exceed a limit
    nodes, longest = _measure(orjson.loads(text))
    if nodes > limits.max_schema_nodes > 0:
        raise _too_many("The request", "nodes of JSON Schemas", limits.max_schema_nodes, "max_schema_nodes", "tools")
    if longest > limits.max_enum > 0:
        raise _too_many("A JSON Schema", "values in one enum", limits.max_enum, "max_enum", "tools")


def _measure(root: Any) -> tuple[int, int]:
    """Return the number of objects and lists, and the length of the longest enum."""
    nodes = longest = 0
    rest = [root]
    while rest:
        node = rest.pop()
        nodes += 1
        if isinstance(node, dict):
            listed = node.get("enum")
            if isinstance(listed, list):
                longest = max(longest, len(listed))
            node = node.values()
        rest += [inner for inner in node if isinstance(inner, dict | list)]
    return nodes, longest


def _too_many(what: str, parts: str, maximum: int, name: str, param: str) -> InvalidRequest:
    return InvalidRequest(
        f"{what} has more than {maximum:,} {parts}, which is the limit (limits.{name}).",
        param=param,
        code="request_too_complex",
    )
