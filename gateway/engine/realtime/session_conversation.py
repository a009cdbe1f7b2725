"""How long a session's conversation may be by now, in tokens: exact where the provider counted, else by its bytes."""

from gateway.neutral.realtime import (
    LEAST_BYTES_A_TOKEN,
    OVERHEAD_TOKENS,
    SECOND_BYTES,
    TEXT_BYTES_A_TOKEN,
    USUAL_BYTES_A_TOKEN,
    USUAL_BYTES_A_TOKEN_MADE,
    ClientEvent,
)
from gateway.neutral.transcriptions import OUTPUT_TOKENS_A_SECOND
from gateway.neutral.usage import Usage

UNKNOWN_CONTEXT = 131_072  # tokens that a model reads whose limit is not known


class ConversationLength:
    """What was said so far, to a model that reads `limit` tokens (0: not known). Every response reads all of it, and
    what it writes is read by the next."""

    def __init__(self, limit: int) -> None:
        self._limit = limit or UNKNOWN_CONTEXT
        # What the provider counted, of all that was added before a place; and all that was added, by its size.
        self._counted = OVERHEAD_TOKENS
        self._counted_at = 0
        self._added = 0
        self._apart = False
        self._text = self._sound = 0

    @property
    def place(self) -> int:
        """How far the conversation is: a response that is asked for now reads all before it."""
        return self._added

    @property
    def most_tokens(self) -> int:
        """The most that a response can read."""
        return min(self._counted + self._added - self._counted_at, self._limit)

    def add(self, event: ClientEvent) -> None:
        """Something of the caller's."""
        self._added += event.text_bytes + -(-event.sound_bytes // LEAST_BYTES_A_TOKEN)
        self._apart = self._apart or event.apart
        self._text += -(-event.text_bytes // TEXT_BYTES_A_TOKEN)
        self._sound += -(-event.sound_bytes // USUAL_BYTES_A_TOKEN)

    def answered(self, usage: Usage, place: int | None) -> None:
        """A response whose tokens the provider counted: what it read stands for all before the `place` where it was
        asked for, unless one of the session was to read something else. None where that is not known."""
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

    def estimate(self, text_made: int, sound_made: int) -> Usage:
        """What a response used that nobody counted, by the size of what it made, in bytes."""
        sound = min(self._sound, self._limit)
        return Usage(
            input=min(self._text, self._limit - sound),
            input_audio=sound,
            output=-(-text_made // TEXT_BYTES_A_TOKEN),
            output_audio=-(-sound_made // USUAL_BYTES_A_TOKEN_MADE),
            basis="estimated",
        )


def tokens_made(text: int, sound: int) -> int:
    """What so many bytes of an answer usually count as."""
    return text // TEXT_BYTES_A_TOKEN + sound // USUAL_BYTES_A_TOKEN_MADE


def heard_of(sound: int, text: int | None = None) -> Usage:
    """Estimate the usage of a transcript from the bytes of its sound and of its text (None: the text is not known)."""
    if text is None:
        output = -(-sound * OUTPUT_TOKENS_A_SECOND // SECOND_BYTES)
    else:
        output = -(-text // TEXT_BYTES_A_TOKEN)
    return Usage(
        input_audio=-(-sound // USUAL_BYTES_A_TOKEN),
        output=output,
        audio_ms=sound * 1000 // SECOND_BYTES,
        basis="estimated",
    )
