"""What reading an answer shares in every format: its object, its faults, and when an end is empty."""

from typing import Any

import orjson

from gateway.errors import UpstreamFailed
from gateway.neutral.chat import FinishReason
from gateway.neutral.usage import Usage
from gateway.providers.protocol import Target

NOT_JSON = "The provider sent an answer that is not JSON."
ODD = "The provider sent an answer of an unknown shape."
EMPTY = "The provider ended its answer without any content."
SHAPE_ERRORS = (AttributeError, LookupError, TypeError, ValueError)  # what reading a foreign shape ends in
EXCUSED = frozenset(("content_filter", "refusal", "pause"))  # ends that explain themselves


def read_object(body: bytes) -> dict[str, Any]:
    """The object of a 2xx body. UpstreamFailed when it is none."""
    try:
        wire = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise UpstreamFailed(NOT_JSON, upstream_status=200) from None
    if not isinstance(wire, dict):
        raise UpstreamFailed(ODD, upstream_status=200)
    return wire


def is_empty(content: bool, finish: FinishReason, usage: Usage | None) -> bool:
    """Whether a successful end brought nothing: no content, no tokens, and no reason that explains it."""
    return not content and finish not in EXCUSED and not (usage and usage.output_total)


def counts_images(target: Target) -> bool:
    """Whether images are billed there one by one."""
    return any(prices.base.per_image for prices in target.mapping.prices)
