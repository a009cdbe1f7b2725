"""Changes of state: logged once each, with their remedy, and published to listeners.

A `StateChange` is for operators: an unavailable store, a rejected credential, credits that are nearly spent. The code
that detects one calls `publish`, or `fire` and `resolve` for conditions that begin and end.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable

from msgspec import Struct, field

INFO = logging.INFO
WARNING = logging.WARNING
ERROR = logging.ERROR
MAX_SUBJECTS = 10_000

log = logging.getLogger("gateway.runtime.state_changes")


class StateChange(Struct, frozen=True):
    """A change of state.

    `event` is its stable name ("redis.away"), `subject` is the affected object ("redis", a credential, a budget),
    `remedy` is what an operator can do ("" if nothing), `facts` are further fields of the log line. `stage`
    distinguishes steps of one problem that each need a line (80 % and 95 % of a limit). Never contains a secret.
    """

    event: str
    subject: str
    message: str
    level: int = WARNING
    remedy: str = ""
    facts: dict[str, object] = field(default_factory=dict)
    stage: str = ""


Listener = Callable[[StateChange], object]


class StateLog:
    """The state changes of a process. Listeners must neither block nor raise.

    `before` is the log of an earlier attempt to start; its changes are known here.
    """

    def __init__(self, before: "StateLog | None" = None) -> None:
        self._listeners: list[Listener] = []
        self._firing: OrderedDict[str, tuple[str, str]] = OrderedDict() if before is None else before._firing

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` with every change from now on."""
        self._listeners.append(listener)

    def publish(self, change: StateChange) -> None:
        """Log the change and notify the listeners."""
        more = {"event": change.event, "remedy": change.remedy, "facts": {"subject": change.subject, **change.facts}}
        log.log(change.level, "%s", change.message, extra=more)
        for listener in self._listeners:
            listener(change)

    def fire(self, change: StateChange) -> None:
        """Publish the problem of a subject, unless it equals the last published one."""
        if self._firing.get(change.subject) == (change.event, change.stage):
            return
        self._firing[change.subject] = change.event, change.stage
        while len(self._firing) > MAX_SUBJECTS:
            self._firing.popitem(last=False)
        self.publish(change)

    def adopt(self, change: StateChange) -> None:
        """Take a problem as published: another worker did it."""
        self._firing[change.subject] = change.event, change.stage

    def resolve(self, change: StateChange) -> None:
        """Publish that a subject is healthy again, if a problem was published."""
        if self._firing.pop(change.subject, None) is not None:
            self.publish(change)

    def firing(self, subject: str) -> str:
        """Return the event of a subject's current problem, "" if it is healthy."""
        return self._firing.get(subject, ("", ""))[0]

    def is_healthy(self, subject: str) -> bool:
        """Return whether a subject has no problem now."""
        return subject not in self._firing
