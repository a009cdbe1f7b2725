"""What a session's settings mean for money: the caller changes them, and only the provider's word makes a change true.

What makes a session dearer counts once it is asked for, since the provider may act on it before its word arrives; what
makes it cheaper counts once the provider has said so, since it may refuse.
"""

from collections.abc import Callable

from gateway.engine.realtime.places import SessionPlace
from gateway.neutral.realtime import UNLIMITED, ClientEvent, ServerEvent

MOST_UPDATES = 256  # that the provider has not answered yet; with more it is not told any more which it has


class SessionSettings:
    """Whether the provider begins responses by itself (`listens`), the limit of each (`most_output`, UNLIMITED), and
    what transcribes. `hears` gives the place of a model that is to, or raises."""

    def __init__(self, hears: Callable[[str], SessionPlace]) -> None:
        self._hears = hears
        self.listens = True
        self.most_output = UNLIMITED
        self._known: dict[str, SessionPlace] = {}  # by the provider's name of the model
        self._asked: SessionPlace | None = None
        self._heard: SessionPlace | None = None
        self._told = self._told_heard = False
        self._updates: dict[str, None] = {}  # ids of those that are not answered yet, oldest first
        self._lost = False

    @property
    def heard(self) -> SessionPlace | None:
        """What transcribes, by the provider's word where there is one."""
        if self._told_heard:
            return self._heard
        return self._asked

    @property
    def expected(self) -> SessionPlace | None:
        """What will transcribe what is said now."""
        if self._updates:
            return self._asked or self.heard
        return self.heard

    def transcribe(self, model: str) -> str:
        """The provider's name of a model that is to transcribe from now on. Errors of `hears`."""
        place = self._hears(model)
        name = place.target.mapping.external_id
        self._asked = self._known[name] = self._known.get(name, place)
        return name

    def asked(self, event: ClientEvent) -> None:
        """An event of the caller that is about to be sent."""
        if not event.updates:
            return
        self._lost = self._lost or len(self._updates) >= MOST_UPDATES
        if not self._lost:
            self._updates[event.id] = None
        self.listens = self.listens or event.listens
        if event.most_output is not None and _is_more(event.most_output, self.most_output):
            self.most_output = event.most_output

    def refused(self, event: str) -> None:
        """The caller's `event` had no effect."""
        self._updates.pop(event, None)

    def told(self, event: ServerEvent) -> None:
        """What the provider says that the session is now: at its beginning, and after each change."""
        if self._told and self._updates:
            del self._updates[next(iter(self._updates))]
        self._told = True
        settled = not self._updates and not self._lost
        if settled or event.listens:
            self.listens = event.listens
        if event.most_output is not None and (settled or _is_more(event.most_output, self.most_output)):
            self.most_output = event.most_output
        if event.transcriber is not None:
            self._told_heard = True
            if event.transcriber:
                self._heard = self._known.get(event.transcriber, self._asked)
            else:
                self._heard = None


def _is_more(limit: int, before: int) -> bool:
    return before != UNLIMITED and (limit == UNLIMITED or limit > before)
