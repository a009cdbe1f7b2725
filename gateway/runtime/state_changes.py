"""Changes of state: logged once each, with their remedy, and published to listeners.

A `StateChange` is for operators: a store that is away, a credential that was refused, credits that are nearly spent.
Those who find one out call `publish`, or `fire` and `resolve` where there are two sides and only the change counts.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

INFO = logging.INFO
WARNING = logging.WARNING
ERROR = logging.ERROR
MOST_SUBJECTS = 10_000

log = logging.getLogger("gateway.runtime.state_changes")


@dataclass(frozen=True, slots=True)
class StateChange:
    """`event` is its stable name ("redis.away"), `subject` what changed ("redis", a credential, a budget), `remedy`
    what an operator can do ("" where nothing is to be done), `facts` what the line names beside. `stage` tells apart
    steps of one problem that are each worth a line (80 % and 95 % of a limit). Never a secret."""

    event: str
    subject: str
    message: str
    level: int = WARNING
    remedy: str = ""
    facts: dict[str, object] = field(default_factory=dict)
    stage: str = ""


Listener = Callable[[StateChange], object]


class StateLog:
    """The changes that a process sees. Listeners must neither wait nor raise. `before` is the log of an earlier try to
    start, whose changes are known here."""

    def __init__(self, before: "StateLog | None" = None) -> None:
        self._listeners: list[Listener] = []
        self._firing: OrderedDict[str, tuple[str, str]] = OrderedDict() if before is None else before._firing

    def listen(self, listener: Listener) -> None:
        """Call `listener` with every change from now on."""
        self._listeners.append(listener)

    def publish(self, change: StateChange) -> None:
        """Log it and notify the listeners."""
        more = {"event": change.event, "remedy": change.remedy, "facts": {"subject": change.subject, **change.facts}}
        log.log(change.level, "%s", change.message, extra=more)
        for listener in self._listeners:
            listener(change)

    def fire(self, change: StateChange) -> None:
        """Publish the problem of a subject, unless the last one published of it is the same."""
        if self._firing.get(change.subject) == (change.event, change.stage):
            return
        self._firing[change.subject] = change.event, change.stage
        while len(self._firing) > MOST_SUBJECTS:
            self._firing.popitem(last=False)
        self.publish(change)

    def resolve(self, change: StateChange) -> None:
        """Publish that a subject is healthy again, if a problem of it was published."""
        if self._firing.pop(change.subject, None) is not None:
            self.publish(change)

    def firing(self, subject: str) -> str:
        """The event of a subject's present problem, "" while it is healthy."""
        return self._firing.get(subject, ("", ""))[0]

    def is_healthy(self, subject: str) -> bool:
        """Whether a subject has no problem now."""
        return subject not in self._firing
