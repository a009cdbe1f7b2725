"""Checks of upstream answers for the readers of all wire formats: shape, size, nesting and empty answers."""

from typing import Any

import orjson

from gateway.errors import EmptyAnswer, UpstreamFailed
from gateway.neutral.chat import FinishReason
from gateway.neutral.json_weight import OPENING, has_more_parts, without_halves
from gateway.neutral.long_json import LONG_BYTES, loads_in_pieces
from gateway.neutral.parameters import MAX_CHOICES
from gateway.neutral.usage import Usage

# Objects and lists of an answer: ten thousand tokens with twenty top log probabilities each are some 210,000.
MAX_PARTS = 250_000
NOT_JSON = "The provider sent an answer that is not JSON."
UNKNOWN_SHAPE = "The provider sent an answer of an unknown shape."
EMPTY = "The provider ended its answer without any content."
DEEP = "The provider sent an answer that is nested deeper than the gateway can pass on."
# orjson reads JSON of up to 1,024 levels and writes up to 254, of which the caller's format needs up to ADDED_LEVELS.
# The depth of events below SHALLOW_BYTES and of answers with at most SHALLOW opening brackets is not checked.
SHALLOW_BYTES = 400
SHALLOW = 200
ADDED_LEVELS = 16
WRITTEN_LEVELS = 254
SHAPE_ERRORS = (AttributeError, LookupError, TypeError, ValueError)  # raised by reading an unexpected shape
EMPTY_ANSWER_REASONS = frozenset(("content_filter", "refusal", "pause"))


def check_parts(body: bytes) -> None:
    """Raise UpstreamFailed for JSON with too many objects and lists."""
    if len(body) > MAX_PARTS and has_more_parts(body, MAX_PARTS, OPENING):
        raise UpstreamFailed(f"The provider sent an answer of more than {MAX_PARTS:,} parts.", upstream_status=200)


def read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a 2xx body. UpstreamFailed for other values, and for an object nested too deeply."""
    if len(body) >= LONG_BYTES:
        return _read_long(body)
    try:
        wire = orjson.loads(body)
    except orjson.JSONDecodeError:
        wire = _read_repaired(body)
    if body.count(b"{") + body.count(b"[") > SHALLOW:
        check_depth(wire)
    if not isinstance(wire, dict):
        raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200)
    return wire


def _read_long(body: bytes) -> dict[str, Any]:
    try:
        wire = loads_in_pieces(body)
    except orjson.JSONDecodeError:
        raise UpstreamFailed(NOT_JSON, upstream_status=200) from None
    if not isinstance(wire, dict):
        raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200)
    check_depth(wire, len(body))
    return wire


def check_depth(wire: Any, size: int = 0) -> bool:
    """Return True. UpstreamFailed for a value that is nested too deeply to be written for a caller.

    `size`: the bytes of its JSON, if it may be long.
    """
    if size >= LONG_BYTES:
        return _check_levels(wire)
    for _ in range(ADDED_LEVELS):
        wire = [wire]
    try:
        orjson.dumps(wire)
    except orjson.JSONEncodeError:
        raise UpstreamFailed(DEEP, upstream_status=200) from None
    return True


def _check_levels(wire: Any) -> bool:
    """Check a long value level by level, since encoding it holds the interpreter lock."""
    level: list[Any] = [wire]
    for _ in range(WRITTEN_LEVELS - ADDED_LEVELS):
        level = [inner for one in level for inner in (one.values() if type(one) is dict else one) if _holds(inner)]
        if not level:
            return True
    raise UpstreamFailed(DEEP, upstream_status=200)


def _holds(value: Any) -> bool:
    return type(value) in (dict, list)


def text_in(value: Any) -> str:
    """Return a provider's string. TypeError for other types, which readers report like any other unexpected shape."""
    if type(value) is not str:
        raise TypeError("not a text")
    return value


def number_in(value: Any) -> int:
    """Return the index of a block. TypeError for other types."""
    if type(value) is not int:
        raise TypeError("not a number")
    return value


def _read_repaired(body: bytes) -> Any:
    try:
        return orjson.loads(without_halves(body))
    except orjson.JSONDecodeError:
        raise UpstreamFailed(NOT_JSON, upstream_status=200) from None


def is_empty(content: bool, finish: FinishReason, usage: Usage | None) -> bool:
    """Whether a successful answer is empty: no content, no tokens, and no finish reason that explains it."""
    return not content and finish not in EMPTY_ANSWER_REASONS and not (usage and usage.output_total)


def empty_answer(finish: FinishReason, usage: Usage | None) -> EmptyAnswer:
    """Return the error for an answer without content."""
    error = EmptyAnswer(EMPTY, upstream_status=200)
    error.finish = finish
    error.usage = usage
    return error


def check_choice(number: Any) -> None:
    """Raise ValueError for an invalid choice index. The limit matters because an index also creates all choices below
    it."""
    if type(number) is not int or not 0 <= number < MAX_CHOICES:
        raise ValueError("a choice with this index was not requested")
