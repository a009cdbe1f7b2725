"""What the caller says: when it begins and ends, and its transcript."""

from collections.abc import Callable
from typing import Any

from gateway.ids import new_hex

Json = dict[str, Any]
BYTES_A_MS = 48  # of PCM at 24 kHz


class Speech:
    """The caller's sound, one stretch of speech at a time.

    `say` tells the caller an event, `append` gives the item of a stretch its place in the conversation and returns the
    id of the one before. `sound` are the bytes since the last stretch; `begun`: speech was noticed; `activity`: the
    upstream was told that it began, and not yet that it ended.
    """

    def __init__(self, say: Callable[[Json], None], append: Callable[[str], str | None]) -> None:
        self._say = say
        self._append = append
        self.sound = 0
        self.begun = self.activity = False
        self._total = 0
        self._item = ""  # of the stretch that goes on
        self._early = ""  # its transcript so far
        self._heard = ""  # the item whose transcript goes on
        self._transcript = ""
        self._complete = False

    def add(self, size: int) -> None:
        """More of it was sent, so many bytes."""
        self.sound += size
        self._total += size

    def begin(self) -> None:
        """Speech was noticed."""
        if self.begun:
            return
        self.begun = True
        self._say(
            {
                "type": "input_audio_buffer.speech_started",
                "audio_start_ms": max(0, self._total - self.sound) // BYTES_A_MS,
                "item_id": self._ident(),
            }
        )

    def end(self) -> None:
        """It ended, as the upstream noticed: it is an item of the conversation now."""
        self.begin()
        about = {"audio_end_ms": self._total // BYTES_A_MS, "item_id": self._ident()}
        self._say({"type": "input_audio_buffer.speech_stopped", **about})
        self.commit()

    def commit(self) -> None:
        """It is an item of the conversation."""
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

    def hear(self, text: str, finished: bool, detects: bool) -> None:
        """A piece of a transcript: of the last item until more speech was noticed. Where the upstream `detects` speech,
        a transcript is a sign of some."""
        if text and self._heard and not self.begun:
            self._transcribe(text)
        elif text:
            self._early += text
            if detects:
                self.begin()
        if finished and self._heard:
            self.complete()

    def complete(self) -> None:
        """Nothing more is transcribed of the last item."""
        item = self._heard
        text = self._transcript
        self._heard = self._transcript = ""
        if item and text:
            # It is counted within the turn that answers it.
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
