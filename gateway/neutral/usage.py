"""Usage counts in disjoint buckets."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any, Literal

from msgspec import Struct, structs

from gateway.neutral.units import COUNTS, with_counters

UsageBasis = Literal["provider", "drained", "estimated", "interrupted"]
# The highest accepted count of one kind in one response: more than a hundred times any model's limit, and sums of
# several fit 32 bits.
MAX_UNITS = 250_000_000
MAX_DIGITS = 20  # of a count that is text


@with_counters(COUNTS)
class Usage(Struct, frozen=True, gc=False):
    """Disjoint counts: no unit is in two buckets, except that `output` includes `reasoning`.

    Input tokens: `input` (uncached text), `cache_read`, `cache_write` (for minutes), `cache_write_1h` (for an hour or
    longer), `input_audio`, `input_audio_cached`, `input_image`. Output tokens: `output` (text and reasoning),
    `output_audio`, `output_image`. Units: `searches` of the web, `pages`, of which `annotated_pages` cost more,
    `images` (generated), `images_read`, `characters`; `audio_ms` of input, `video_ms` of output. The units that no code
    reads by name have their fields from UNITS.

    `basis` is the source of the numbers. `price_key` selects a price from the table for images or video, or from those
    of the image tool: `quality/size`, `<resolution>[_audio|_video]`, or the tool's model. `calls` is the number of
    equal calls in this sum, for prices by call or by prompt size (0: one call).
    """

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    input_audio: int = 0
    input_audio_cached: int = 0
    input_image: int = 0
    output: int = 0
    reasoning: int = 0
    output_audio: int = 0
    output_image: int = 0
    searches: int = 0
    pages: int = 0
    images: int = 0
    characters: int = 0
    audio_ms: int = 0
    video_ms: int = 0
    images_read: int = 0
    annotated_pages: int = 0
    basis: UsageBasis = "provider"
    price_key: str = ""
    calls: int = 0

    @property
    def input_total(self) -> int:
        """Return all input tokens, including cached ones."""
        return (
            self.input
            + self.cache_read
            + self.cache_write
            + self.cache_write_1h
            + self.input_audio
            + self.input_audio_cached
            + self.input_image
        )

    @property
    def output_total(self) -> int:
        return self.output + self.output_audio + self.output_image


NO_USAGE = Usage()
READ_COUNTS = attrgetter(*COUNTS)


class Units(Struct, frozen=True):
    """Billable units of a request other than text tokens: images, pages, characters, audio.

    `maximum` is the upper bound before the call; `likely` is billed if there is no count: a response without usage, a
    disconnected caller, a worker that died. `foreseen`: where only the provider sees which units apply, those that the
    gateway sees; a budget with room for these, but not for `maximum`, admits one such request at a time.
    """

    maximum: Usage
    likely: Usage
    foreseen: Usage | None = None


def added(usages: Iterable[Usage]) -> Usage:
    """Return the sum of counts that have the same price; it is an estimate if any of them is."""
    reported = list(usages)
    counts = {name: total for name in COUNTS if (total := sum(getattr(usage, name) for usage in reported))}
    basis = "estimated" if any(usage.basis == "estimated" for usage in reported) else reported[0].basis
    return Usage(**counts, basis=basis, price_key=reported[0].price_key)


def with_shown(usage: Usage | None, searches: int = 0, images: int = 0) -> Usage | None:
    """Add the units that the response itself shows, web searches and images, if its provider reports no count of
    them.
    """
    if usage is not None and usage.searches:
        searches = 0
    if usage is not None and usage.output_image:
        images = 0
    if not searches and not images:
        return usage
    usage = usage or NO_USAGE
    return structs.replace(usage, searches=usage.searches + searches, images=images)


def read_count(value: Any) -> int:
    """Return an external count, limited to 0 and MAX_UNITS; 0 for invalid values. Some providers send counts as
    floats or as text.
    """
    if not value:  # most counts are absent
        return 0
    if type(value) is int or (type(value) is float and value == value):
        if value <= 0:
            return 0
        return int(value) if value < MAX_UNITS else MAX_UNITS
    if type(value) is str and value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS:
        return min(int(value), MAX_UNITS)
    return 0


def counts_anything(usage: Usage) -> bool:
    """Return whether any count is above zero."""
    return any(READ_COUNTS(usage))


def within_bounds(usage: Usage) -> Usage:
    """Limit every count to the range from 0 to MAX_UNITS."""
    counts = {name: value for name in COUNTS if not 0 <= (value := getattr(usage, name)) <= MAX_UNITS}
    if counts:
        return structs.replace(usage, **{name: read_count(value) for name, value in counts.items()})
    return usage
