"""The settings of a session that affect its cost. The caller requests changes, the provider confirms them.

A change that makes the session more expensive counts when it is requested, since the provider may apply it before it
confirms it. A change that makes it cheaper counts when the provider confirms it, since the provider may refuse it.
"""

from collections.abc import Callable

from gateway.engine.realtime.places import SessionPlace
from gateway.neutral.realtime import UNLIMITED, ClientEvent, ServerEvent

MOST_UPDATES = 256  # unconfirmed updates; beyond it confirmations can no longer be assigned to updates


class SessionSettings:
    """Whether the provider begins responses unrequested (`listens`), the limit of each (`most_output`, UNLIMITED), and
    the transcription model. `hears` returns the place of a transcription model, or raises."""

    def __init__(self, hears: Callable[[str], SessionPlace]) -> None:
        self._hears = hears
        self.listens = True
        self.most_output = UNLIMITED
        self._known: dict[str, SessionPlace] = {}  # by the provider's name of the model
        self._requested: SessionPlace | None = None
        self._heard: SessionPlace | None = None
        self._confirmed = self._heard_confirmed = False
        self._updates: dict[str, None] = {}  # ids of unconfirmed updates, oldest first
        self._lost = False

    @property
    def heard(self) -> SessionPlace | None:
        """The transcription model that the provider confirmed, else the requested one."""
        if self._heard_confirmed:
            return self._heard
        return self._requested

    @property
    def expected(self) -> SessionPlace | None:
        """The transcription model for speech that is sent now."""
        if self._updates:
            return self._requested or self.heard
        return self.heard

    def transcribe(self, model: str) -> str:
        """Select a transcription model; returns the provider's name of it. Errors of `hears`."""
        place = self._hears(model)
        name = place.target.mapping.external_id
        self._requested = self._known[name] = self._known.get(name, place)
        return name

    def asked(self, event: ClientEvent) -> None:
        """Record an event of the caller that is about to be sent."""
        if not event.updates:
            return
        self._lost = self._lost or len(self._updates) >= MOST_UPDATES
        if not self._lost:
            self._updates[event.id] = None
        self.listens = self.listens or event.listens
        if event.most_output is not None and _is_more(event.most_output, self.most_output):
            self.most_output = event.most_output

    def refused(self, event: str) -> None:
        """Record that the caller's `event` had no effect."""
        self._updates.pop(event, None)

    def told(self, event: ServerEvent) -> None:
        """Record the settings that the provider reports, at the beginning and after each change."""
        if self._confirmed and self._updates:
            del self._updates[next(iter(self._updates))]
        self._confirmed = True
        settled = not self._updates and not self._lost
        if settled or event.listens:
            self.listens = event.listens
        if event.most_output is not None and (settled or _is_more(event.most_output, self.most_output)):
            self.most_output = event.most_output
        if event.transcriber is not None:
            self._heard_confirmed = True
            if event.transcriber:
                self._heard = self._known.get(event.transcriber, self._requested)
            else:
                self._heard = None


def _is_more(limit: int, before: int) -> bool:
    return before != UNLIMITED and (limit == UNLIMITED or limit > before)
