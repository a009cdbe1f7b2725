"""What reading an answer shares in every format: its object, its faults, and when an end is empty."""

from typing import Any

import orjson

from gateway.errors import UpstreamFailed
from gateway.neutral.chat import FinishReason
from gateway.neutral.cut_pairs import without_halves
from gateway.neutral.json_parts import OPENING, has_more_parts
from gateway.neutral.usage import Usage
from gateway.providers.protocol import Target

# Objects and lists of an answer: ten thousand tokens with the twenty likeliest of each are some 210,000.
MOST_PARTS = 250_000
MOST_CHOICES = 128  # that may be asked for at once
NOT_JSON = "The provider sent an answer that is not JSON."
ODD = "The provider sent an answer of an unknown shape."
EMPTY = "The provider ended its answer without any content."
SHAPE_ERRORS = (AttributeError, LookupError, TypeError, ValueError)  # what reading a foreign shape ends in
EXCUSED = frozenset(("content_filter", "refusal", "pause"))  # ends that explain themselves


def check_parts(body: bytes) -> None:
    """UpstreamFailed for JSON of more objects and lists than are read."""
    if len(body) > MOST_PARTS and has_more_parts(body, MOST_PARTS, OPENING):
        raise UpstreamFailed(f"The provider sent an answer of more than {MOST_PARTS:,} parts.", upstream_status=200)


def read_object(body: bytes) -> dict[str, Any]:
    """The object of a 2xx body. UpstreamFailed when it is none."""
    try:
        wire = orjson.loads(body)
    except orjson.JSONDecodeError:
        wire = _read_mended(body)
    if not isinstance(wire, dict):
        raise UpstreamFailed(ODD, upstream_status=200)
    return wire


def text_in(value: Any) -> str:
    """A text of a provider's. TypeError for what is none: its reader tells so as of any other odd shape."""
    if type(value) is not str:
        raise TypeError("not a text")
    return value


def number_in(value: Any) -> int:
    """The number of a block. TypeError for what is none."""
    if type(value) is not int:
        raise TypeError("not a number")
    return value


def _read_mended(body: bytes) -> Any:
    try:
        return orjson.loads(without_halves(body))
    except orjson.JSONDecodeError:
        raise UpstreamFailed(NOT_JSON, upstream_status=200) from None


def is_empty(content: bool, finish: FinishReason, usage: Usage | None) -> bool:
    """Whether a successful end brought nothing: no content, no tokens, and no reason that explains it."""
    return not content and finish not in EXCUSED and not (usage and usage.output_total)


def check_choice(number: Any) -> None:
    """ValueError for what is no number of a choice; what is told of each choice is told of all below it too."""
    if type(number) is not int or not 0 <= number < MOST_CHOICES:
        raise ValueError("a choice of this number was not asked for")


def counts_images(target: Target) -> bool:
    """Whether images are billed there one by one."""
    return any(prices.base.per_image for prices in target.mapping.prices)
