"""Changes of state: logged once each, with what to do about them, and told to whoever listens.

A `StateChange` is for operators: a store that is away, a credential that was refused, credits that are nearly spent.
Those who find one out call `tell`, or `worsen` and `mend` where there are two sides and only the change counts.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

INFO, WARNING, ERROR = logging.INFO, logging.WARNING, logging.ERROR
MOST_SUBJECTS = 10_000

log = logging.getLogger("gateway.states")


@dataclass(frozen=True, slots=True)
class StateChange:
    """`event` is its stable name ("redis.away"), `subject` what changed ("redis", a credential, a budget), `remedy`
    what an operator can do ("" where nothing is to be done), `facts` what the line names beside. Never a secret."""

    event: str
    subject: str
    message: str
    level: int = WARNING
    remedy: str = ""
    facts: dict[str, object] = field(default_factory=dict)


Listener = Callable[[StateChange], object]


class StateLog:
    """The changes that a process sees. Listeners must neither wait nor raise."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._bad: OrderedDict[str, str] = OrderedDict()

    def listen(self, listener: Listener) -> None:
        """Call `listener` with every change from now on."""
        self._listeners.append(listener)

    def tell(self, change: StateChange) -> None:
        """Log it, and tell the listeners."""
        more = {"event": change.event, "remedy": change.remedy, "facts": {"subject": change.subject, **change.facts}}
        log.log(change.level, "%s", change.message, extra=more)
        for listener in self._listeners:
            listener(change)

    def worsen(self, change: StateChange) -> None:
        """Tell it unless this subject is known to be in that state already."""
        if self._bad.get(change.subject) == change.event:
            return
        self._bad[change.subject] = change.event
        while len(self._bad) > MOST_SUBJECTS:
            self._bad.popitem(last=False)
        self.tell(change)

    def mend(self, change: StateChange) -> None:
        """Tell that a subject is well again, where it was told to be unwell."""
        if self._bad.pop(change.subject, None) is not None:
            self.tell(change)

    def worst(self, subject: str) -> str:
        """The event that was told of a subject last, "" while it is well."""
        return self._bad.get(subject, "")

    def is_well(self, subject: str) -> bool:
        """Whether nothing bad was told of a subject, or it is over."""
        return subject not in self._bad
