"""Counts of what was used, in disjoint buckets."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any, Literal

from msgspec import Struct, structs

UsageBasis = Literal["provider", "drained", "estimated", "interrupted"]
# The most that is counted of one kind in one answer: no model takes or gives a hundredth of it, and sums of several
# fit 32 bits.
MOST_UNITS = 250_000_000


class Usage(Struct, frozen=True, gc=False):
    """Disjoint counts: no unit is in two buckets, except `reasoning` ⊂ `output`.

    Tokens in: `input` (text, uncached), `cache_read`, `cache_write` (for minutes), `cache_write_1h`
    (for an hour or longer), `input_audio`,
    `input_audio_cached`, `input_image`. Tokens out: `output` (text and reasoning), `output_audio`, `output_image`.
    Units: `searches` of the web, `file_searches`, `code_sessions` (containers that ran code), `pages`, `images` (made),
    `characters`; `audio_ms` heard, `video_ms` made.
    `basis` tells where the numbers come from; `price_key` which price of a table the images or the video have:
    `quality/size` or `<resolution>[_audio|_video]`. `calls` is the number of equal calls that it is the sum of, for
    what is priced by the call or by the size of a prompt (0: one).
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
    file_searches: int = 0
    code_sessions: int = 0
    basis: UsageBasis = "provider"
    price_key: str = ""
    calls: int = 0

    @property
    def input_total(self) -> int:
        """All tokens in, cached ones included."""
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


NOTHING = Usage()
COUNTS = tuple(name for name in Usage.__struct_fields__ if name not in ("basis", "price_key", "calls"))
READ_COUNTS = attrgetter(*COUNTS)


class Units(Struct, frozen=True):
    """What a request asks for beside text, or by which it is priced instead: images, pages, characters, sound.

    `most` bounds it, before the call; `likely` is what is billed where nobody counted: an answer without usage, a
    caller who disconnected, a worker that died. `unforeseen`: only the provider sees which of them it is, so a budget
    without room for the most admits one such request at a time.
    """

    most: Usage
    likely: Usage
    unforeseen: bool = False


def added(usages: Iterable[Usage]) -> Usage:
    """The sum of counts of the same price; an estimate when one of them is."""
    reported = list(usages)
    counts = {name: total for name in COUNTS if (total := sum(getattr(one, name) for one in reported))}
    basis = "estimated" if any(one.basis == "estimated" for one in reported) else reported[0].basis
    return Usage(**counts, basis=basis, price_key=reported[0].price_key)


def with_shown(usage: Usage | None, searches: int = 0, images: int = 0) -> Usage | None:
    """The usage with what the answer itself shows: web searches and images that its provider reports no count of."""
    if usage is not None and usage.searches:
        searches = 0
    else:
        searches = searches
    if usage is not None and usage.output_image:
        images = 0
    else:
        images = images
    if not searches and not images:
        return usage
    usage = usage or NOTHING
    return structs.replace(usage, searches=usage.searches + searches, images=images)


def read_count(value: Any) -> int:
    """A count from outside, within 0 and MOST_UNITS; 0 for what is none. Some write counts as floats."""
    if type(value) is int or (type(value) is float and value == value):
        if value <= 0:
            return 0
        return int(value) if value < MOST_UNITS else MOST_UNITS
    return 0


def counts_anything(usage: Usage) -> bool:
    """Whether any count is above zero."""
    return any(READ_COUNTS(usage))


def within_bounds(usage: Usage) -> Usage:
    """The same with every count that passes MOST_UNITS, or is below zero, set to that end."""
    counts = {name: value for name in COUNTS if not 0 <= (value := getattr(usage, name)) <= MOST_UNITS}
    if counts:
        return structs.replace(usage, **{name: read_count(value) for name, value in counts.items()})
    return usage
