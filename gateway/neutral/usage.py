"""Counts of what was used, in disjoint buckets."""

from typing import Literal

from msgspec import Struct

UsageBasis = Literal["provider", "drained", "estimated", "interrupted"]


class Usage(Struct, frozen=True, gc=False):
    """Disjoint counts: no unit is in two buckets, except `reasoning` ⊂ `output`.

    Tokens in: `input` (text, uncached), `cache_read`, `cache_write` (5 minutes), `cache_write_1h`, `input_audio`,
    `input_audio_cached`, `input_image`. Tokens out: `output` (text and reasoning), `output_audio`, `output_image`.
    Units: `searches`, `pages`, `images` (made), `characters`; `audio_ms` heard, `video_ms` made.
    `basis` tells where the numbers come from.
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
    basis: UsageBasis = "provider"

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
