"""The settings of a session that affect its cost. The caller requests changes, the provider confirms them.

A change that makes the session more expensive counts when it is requested, since the provider may apply it before it
confirms it. A change that makes it cheaper counts when the provider confirms it, since the provider may refuse it.
"""

from collections.abc import Callable

from gateway.engine.realtime.places import SessionPlace
from gateway.neutral.realtime import UNLIMITED, ClientEvent, ServerEvent

MAX_PENDING_UPDATES = 256  # unconfirmed updates; beyond it confirmations can no longer be assigned to updates


class SessionSettings:
    """Whether the provider begins responses unrequested (`auto_responds`), the limit of each (`most_output`,
    UNLIMITED), and the transcription model. `find_transcriber` returns the place of a transcription model, or
    raises."""

    def __init__(self, find_transcriber: Callable[[str], SessionPlace]) -> None:
        self._find_transcriber = find_transcriber
        self.auto_responds = True
        self.most_output = UNLIMITED
        self._known: dict[str, SessionPlace] = {}  # by the provider's name of the model
        self._requested: SessionPlace | None = None
        self._transcriber: SessionPlace | None = None
        self._confirmed = self._transcriber_confirmed = False
        self._updates: dict[str, None] = {}  # ids of unconfirmed updates, oldest first
        self._lost = False

    @property
    def transcriber(self) -> SessionPlace | None:
        """The transcription model that the provider confirmed, else the requested one."""
        if self._transcriber_confirmed:
            return self._transcriber
        return self._requested

    @property
    def expected_transcriber(self) -> SessionPlace | None:
        """The transcription model for speech that is sent now."""
        if self._updates:
            return self._requested or self.transcriber
        return self.transcriber

    def transcribe(self, model: str) -> str:
        """Select a transcription model; returns the provider's name of it. Errors of `find_transcriber`."""
        place = self._find_transcriber(model)
        name = place.target.mapping.external_id
        self._requested = self._known[name] = self._known.get(name, place)
        return name

    def requested(self, event: ClientEvent) -> None:
        """Record an event of the caller that is about to be sent."""
        if not event.updates:
            return
        self._lost = self._lost or len(self._updates) >= MAX_PENDING_UPDATES
        if not self._lost:
            self._updates[event.id] = None
        self.auto_responds = self.auto_responds or event.auto_responds
        if event.most_output is not None and _is_more(event.most_output, self.most_output):
            self.most_output = event.most_output

    def refused(self, event: str) -> None:
        """Record that the caller's `event` had no effect."""
        self._updates.pop(event, None)

    def confirmed(self, event: ServerEvent) -> None:
        """Record the settings that the provider reports, at the beginning and after each change."""
        if self._confirmed and self._updates:
            del self._updates[next(iter(self._updates))]
        self._confirmed = True
        settled = not self._updates and not self._lost
        if settled or event.auto_responds:
            self.auto_responds = event.auto_responds
        if event.most_output is not None and (settled or _is_more(event.most_output, self.most_output)):
            self.most_output = event.most_output
        if event.transcriber is not None:
            self._transcriber_confirmed = True
            if event.transcriber:
                self._transcriber = self._known.get(event.transcriber, self._requested)
            else:
                self._transcriber = None


def _is_more(limit: int, before: int) -> bool:
    return before != UNLIMITED and (limit == UNLIMITED or limit > before)
