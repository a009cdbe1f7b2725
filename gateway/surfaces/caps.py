"""Caps on what one request may hold, each refused by its name; and large bodies read in a thread."""

import re
from collections.abc import Callable, Sized
from typing import Any, ParamSpec, TypeVar

import orjson
from msgspec import json

from gateway.errors import InvalidRequest
from gateway.settings import LimitSettings
from gateway.threads import compute, pause

LARGE = 1 << 17  # from so many bytes a body is read in a thread; what is smaller can hold little
SLICE = 1 << 21  # bytes that are counted between two turns of the event loop
# Strings as a whole, so that what stands in them is no structure. Possessive: a string without end is read once.
TOKENS = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{\[,]', re.DOTALL)
P = ParamSpec("P")
T = TypeVar("T")


def read(limits: LimitSettings, raw: bytes, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `work` makes of the body `raw`. InvalidRequest `request_too_complex` for a body of too many parts."""
    if len(raw) < LARGE:
        return work(*args, **kwargs)
    check_nodes(raw, limits.max_json_nodes)
    return compute(work, *args, **kwargs)


def check_nodes(raw: bytes, most: int) -> None:
    """InvalidRequest for a JSON text of more than `most` parts, before it is decoded: each takes memory."""
    if most and has_more_parts(raw, most):
        raise _too_many("The body", "parts (values, objects and lists)", most, "max_json_nodes", "")


def has_more_parts(raw: bytes, most: int) -> bool:
    """Whether a JSON text has more than `most` parts."""
    if len(raw) <= most:
        return False
    found = 0
    for start in range(0, len(raw), SLICE):
        found += sum(raw.count(mark, start, start + SLICE) for mark in (b"{", b"[", b","))
        pause(0)
    # Most of them may stand in texts.
    return found > most and compute(_has_more, raw, most)


def check(limits: LimitSettings, raw: bytes, messages: Sized | None, tools: Sized | None, *schemas: Any) -> None:
    """InvalidRequest for more messages or tools than a request may have, and for larger JSON Schemas; `tools` and
    `schemas` hold them, in any form that can be written as JSON."""
    if messages is not None and len(messages) > limits.max_messages > 0:
        raise _too_many("The request", "messages", limits.max_messages, "max_messages", "messages")
    if tools is not None and len(tools) > limits.max_tools > 0:
        raise _too_many("The request", "tools", limits.max_tools, "max_tools", "tools")
    if len(raw) > 2 * min(limits.max_schema_nodes or len(raw), limits.max_enum or len(raw)):
        for holder in (tools, *schemas):
            if holder:
                _check_schemas(limits, json.encode(holder))


def check_inputs(limits: LimitSettings, inputs: Sized) -> None:
    """InvalidRequest for more texts to embed than a request may have: each has an answer of many numbers."""
    if len(inputs) > limits.max_inputs > 0:
        raise _too_many("The request", "inputs", limits.max_inputs, "max_inputs", "input")


def _check_schemas(limits: LimitSettings, text: bytes) -> None:
    nodes, commas = text.count(b"{") + text.count(b"["), text.count(b",")
    if not (nodes > limits.max_schema_nodes > 0 or commas >= limits.max_enum > 0):
        return  # whatever it is: it cannot be too much
    nodes, longest = _measure(orjson.loads(text))
    if nodes > limits.max_schema_nodes > 0:
        raise _too_many("The request", "nodes of JSON Schemas", limits.max_schema_nodes, "max_schema_nodes", "tools")
    if longest > limits.max_enum > 0:
        raise _too_many("A JSON Schema", "values in one enum", limits.max_enum, "max_enum", "tools")


def _measure(root: Any) -> tuple[int, int]:
    """How many objects and lists there are, and the length of the longest enum."""
    nodes = longest = 0
    rest = [root]
    while rest:
        node = rest.pop()
        nodes += 1
        if isinstance(node, dict):
            listed = node.get("enum")
            longest = max(longest, len(listed)) if isinstance(listed, list) else longest
            node = node.values()
        rest += [inner for inner in node if isinstance(inner, dict | list)]
    return nodes, longest


def _has_more(raw: bytes, most: int) -> bool:
    """Whether there are more marks of structure outside of strings."""
    found = 0
    for token in TOKENS.finditer(raw):
        found += token.end() - token.start() == 1
        if found > most:
            return True
    return False


def _too_many(what: str, parts: str, most: int, name: str, param: str) -> InvalidRequest:
    return InvalidRequest(
        f"{what} has more than {most:,} {parts}, the most that this gateway takes (limits.{name}).",
        param=param,
        code="request_too_complex",
    )
