"""Checks that the readers of all wire formats share: the shape of an answer, its size, and empty answers."""

from typing import Any

import orjson

from gateway.errors import UpstreamFailed
from gateway.neutral.chat import FinishReason
from gateway.neutral.cut_pairs import without_halves
from gateway.neutral.json_parts import OPENING, has_more_parts
from gateway.neutral.usage import Usage

# Objects and lists of an answer: ten thousand tokens with twenty top log probabilities each are some 210,000.
MOST_PARTS = 250_000
MOST_CHOICES = 128  # that can be requested at once
NOT_JSON = "The provider sent an answer that is not JSON."
ODD = "The provider sent an answer of an unknown shape."
EMPTY = "The provider ended its answer without any content."
DEEP = "The provider sent an answer that is nested deeper than the gateway can pass on."
# JSON is read to 1,024 levels and written to 254, of which a caller's format puts some around what came. Events of
# so many bytes, and answers of so many openings of objects and lists, are looked at no further.
SHALLOW_BYTES = 400
SHALLOW = 200
AROUND = 16
SHAPE_ERRORS = (AttributeError, LookupError, TypeError, ValueError)  # what reading an unexpected shape raises
EXCUSED = frozenset(("content_filter", "refusal", "pause"))  # finish reasons that explain an empty answer


def check_parts(body: bytes) -> None:
    """UpstreamFailed for JSON with too many objects and lists."""
    if len(body) > MOST_PARTS and has_more_parts(body, MOST_PARTS, OPENING):
        raise UpstreamFailed(f"The provider sent an answer of more than {MOST_PARTS:,} parts.", upstream_status=200)


def read_object(body: bytes) -> dict[str, Any]:
    """The object of a 2xx body. UpstreamFailed when it is not one, or could not be written again."""
    try:
        wire = orjson.loads(body)
    except orjson.JSONDecodeError:
        wire = _read_mended(body)
    if body.count(b"{") + body.count(b"[") > SHALLOW:
        check_depth(wire)
    if not isinstance(wire, dict):
        raise UpstreamFailed(ODD, upstream_status=200)
    return wire


def check_depth(wire: Any) -> bool:
    """True, or UpstreamFailed for a provider's value that is nested too deep to be written for a caller."""
    for _ in range(AROUND):
        wire = [wire]
    try:
        orjson.dumps(wire)
    except orjson.JSONEncodeError:
        raise UpstreamFailed(DEEP, upstream_status=200) from None
    return True


def text_in(value: Any) -> str:
    """A string from a provider. TypeError for anything else, which readers report like any other unexpected shape."""
    if type(value) is not str:
        raise TypeError("not a text")
    return value


def number_in(value: Any) -> int:
    """The index of a block. TypeError for anything else."""
    if type(value) is not int:
        raise TypeError("not a number")
    return value


def _read_mended(body: bytes) -> Any:
    try:
        return orjson.loads(without_halves(body))
    except orjson.JSONDecodeError:
        raise UpstreamFailed(NOT_JSON, upstream_status=200) from None


def is_empty(content: bool, finish: FinishReason, usage: Usage | None) -> bool:
    """Whether a successful answer is empty: no content, no tokens, and no finish reason that explains it."""
    return not content and finish not in EXCUSED and not (usage and usage.output_total)


def check_choice(number: Any) -> None:
    """ValueError for an invalid choice index; whatever is reported for a choice is reported for all below it too."""
    if type(number) is not int or not 0 <= number < MOST_CHOICES:
        raise ValueError("a choice of this number was not asked for")
