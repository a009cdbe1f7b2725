"""The caller's speech: its begin, its end and its transcript."""

from collections.abc import Callable
from typing import Any

from gateway.ids import new_hex

Json = dict[str, Any]
BYTES_PER_MS = 48  # of PCM at 24 kHz


class Speech:
    """The caller's audio, one segment of speech at a time.

    `say` queues an event for the caller. `append` adds the item of a segment to the conversation, and returns the id of
    the preceding item. `sound` is the number of bytes since the last segment. `begun`: speech was detected. `activity`:
    the upstream has received an activityStart without an activityEnd.
    """

    def __init__(self, say: Callable[[Json], None], append: Callable[[str], str | None]) -> None:
        self._say = say
        self._append = append
        self.sound = 0
        self.begun = self.activity = False
        self._total = 0
        self._item = ""  # item id of the current segment
        self._early = ""  # transcript of the current segment so far
        self._heard = ""  # item id of the last segment while its transcript continues
        self._transcript = ""
        self._complete = False

    def add(self, size: int) -> None:
        """Count bytes of audio that were sent."""
        self.sound += size
        self._total += size

    def begin(self) -> None:
        """Report the begin of speech to the caller."""
        if self.begun:
            return
        self.begun = True
        self._say(
            {
                "type": "input_audio_buffer.speech_started",
                "audio_start_ms": max(0, self._total - self.sound) // BYTES_PER_MS,
                "item_id": self._ident(),
            }
        )

    def end(self) -> None:
        """Report the end of speech that the upstream detected, and commit the segment."""
        self.begin()
        about = {"audio_end_ms": self._total // BYTES_PER_MS, "item_id": self._ident()}
        self._say({"type": "input_audio_buffer.speech_stopped", **about})
        self.commit()

    def commit(self) -> None:
        """Make the segment an item of the conversation."""
        self.complete()
        item = self._ident()
        self._item = ""
        self.sound = 0
        self.begun = False
        previous = self._append(item)
        self._say({"type": "input_audio_buffer.committed", "previous_item_id": previous, "item_id": item})
        content = [{"type": "input_audio", "transcript": None}]
        wire = {"id": item, "object": "realtime.item", "type": "message", "role": "user", "content": content}
        for end in ("added", "done"):
            kind = f"conversation.item.{end}"
            self._say({"type": kind, "previous_item_id": previous, "item": {**wire, "status": "completed"}})
        self._heard = item
        early = self._early
        self._early = ""
        if early:
            self._transcribe(early)

    def add_transcript(self, text: str, finished: bool, detects: bool) -> None:
        """Add a piece of a transcript, which belongs to the last item until more speech is detected.

        `detects`: the upstream detects speech, so a transcript means that speech began.
        """
        if text and self._heard and not self.begun:
            self._transcribe(text)
        elif text:
            self._early += text
            if detects:
                self.begin()
        if finished and self._heard:
            self.complete()

    def complete(self) -> None:
        """End the transcript of the last item."""
        item = self._heard
        text = self._transcript
        self._heard = self._transcript = ""
        if item and text:
            # The usage of the transcription is part of the turn that answers the speech.
            usage = {"type": "tokens", "input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
            self._say({"type": f"{TRANSCRIPT}.completed", **_at(item), "transcript": text, "usage": usage})

    def _transcribe(self, piece: str) -> None:
        self._transcript += piece
        self._say({"type": f"{TRANSCRIPT}.delta", **_at(self._heard), "delta": piece})

    def _ident(self) -> str:
        self._item = self._item or f"item_{new_hex()}"
        return self._item


TRANSCRIPT = "conversation.item.input_audio_transcription"


def _at(item: str) -> Json:
    return {"item_id": item, "content_index": 0}
