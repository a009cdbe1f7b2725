"""The length of a session's conversation in tokens: as counted by the provider, else estimated from its bytes."""

from msgspec import structs

from gateway.neutral.realtime import (
    INPUT_BYTES_PER_TOKEN,
    MIN_BYTES_PER_TOKEN,
    OUTPUT_BYTES_PER_TOKEN,
    OVERHEAD_TOKENS,
    SECOND_BYTES,
    TEXT_BYTES_PER_TOKEN,
    ClientEvent,
)
from gateway.neutral.transcriptions import OUTPUT_TOKENS_PER_SECOND
from gateway.neutral.usage import Usage

UNKNOWN_CONTEXT = 131_072  # tokens assumed for a model without a known context length


class ConversationLength:
    """The length of a conversation with a model that reads `limit` tokens (0: unknown). Every response reads all of it,
    and the next response reads its output too."""

    def __init__(self, limit: int) -> None:
        self._limit = limit or UNKNOWN_CONTEXT
        # The provider's count of everything before a position, and the size of everything that was added.
        self._counted = OVERHEAD_TOKENS
        self._counted_at = 0
        self._added = 0
        self._apart = False
        self._text = self._sound = 0

    @property
    def place(self) -> int:
        """The current position: a response requested now reads everything before it."""
        return self._added

    @property
    def most_tokens(self) -> int:
        """The most tokens that a response can read."""
        return min(self._counted + self._added - self._counted_at, self._limit)

    def add(self, event: ClientEvent) -> None:
        """Add an event of the caller."""
        self._added += event.text_bytes + -(-event.sound_bytes // MIN_BYTES_PER_TOKEN)
        if event.unseen:
            self._added += self._limit
        self._apart = self._apart or event.apart
        self._text += -(-event.text_bytes // TEXT_BYTES_PER_TOKEN)
        self._sound += -(-event.sound_bytes // INPUT_BYTES_PER_TOKEN)

    def answered(self, usage: Usage, place: int | None) -> None:
        """Record a response with the token counts of the provider.

        Its input counts for everything before the position `place` at which it was requested, unless some response was
        to read another input. `place` is None where the position is unknown.
        """
        self._added += usage.output_total
        read = usage.input_total + OVERHEAD_TOKENS
        if place is None or place < self._counted_at or self._apart or not usage.input_total:
            before = self._counted + self._added - self._counted_at
            self._counted += max(0, read + usage.output_total - before)
        else:
            self._counted = read
            self._counted_at = place
        self._sound = usage.input_audio + usage.input_audio_cached + usage.output_audio
        self._text = usage.input_total - usage.input_audio - usage.input_audio_cached + usage.output

    def estimate(self, text_bytes: int, sound_bytes: int) -> Usage:
        """Estimate the usage of a response without a count from the bytes of its output."""
        sound = min(self._sound, self._limit)
        return Usage(
            input=min(self._text, self._limit - sound),
            input_audio=sound,
            output=-(-text_bytes // TEXT_BYTES_PER_TOKEN),
            output_audio=-(-sound_bytes // OUTPUT_BYTES_PER_TOKEN),
            basis="estimated",
        )

    def complete(self, reported: Usage | None, text_bytes: int, sound_bytes: int) -> Usage:
        """Return the usage of a response, with estimates for its input or its output where nothing was reported."""
        estimated = self.estimate(text_bytes, sound_bytes)
        if reported is None:
            return estimated
        missing: dict[str, int] = {}
        if not reported.input_total:
            missing |= {"input": estimated.input, "input_audio": estimated.input_audio}
        if not reported.output_total:
            missing |= {"output": estimated.output, "output_audio": estimated.output_audio}
        if any(missing.values()):
            return structs.replace(reported, **missing, basis="estimated")
        return reported


def output_tokens(text: int, sound: int) -> int:
    """Return the usual number of tokens for this many bytes of an answer."""
    return text // TEXT_BYTES_PER_TOKEN + sound // OUTPUT_BYTES_PER_TOKEN


def transcription_usage(sound: int, text: int | None = None) -> Usage:
    """Estimate the usage of a transcript from the bytes of its sound and its text (None: unknown)."""
    if text is None:
        output = -(-sound * OUTPUT_TOKENS_PER_SECOND // SECOND_BYTES)
    else:
        output = -(-text // TEXT_BYTES_PER_TOKEN)
    return Usage(
        input_audio=-(-sound // INPUT_BYTES_PER_TOKEN),
        output=output,
        audio_ms=sound * 1000 // SECOND_BYTES,
        basis="estimated",
    )
