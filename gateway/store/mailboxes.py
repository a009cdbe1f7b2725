"""Messages to whoever listens in any worker: a mailbox belongs to one worker, and every worker can put something in.

What comes from the same worker is handed over at once; what comes from another one is a document until the collector of
the listening worker finds it, so that workers of one node (SQLite) and of several (PostgreSQL) find each other.
"""

import logging
import queue
import secrets

from gateway.errors import Unavailable
from gateway.store.documents import Documents
from gateway.threads import pause, spawn

log = logging.getLogger(__name__)

KIND = "mailbox"  # documents that say where somebody listens, by owner and name; of messages the kind is the place's
COLLECT_S = 0.2
MOST_AT_ONCE = 16  # messages read in one round
MESSAGE_S = 60.0
# How long somebody counts as listening whose worker died; renewed at every third of it.
LISTENING_S = 60.0
MOST_WAITING = 64  # messages that nobody took yet; one who takes none is no listener


class Mailbox:
    """What one listener gets. `ended`: nothing comes any more."""

    def __init__(self, owner: str, name: str) -> None:
        self.owner, self.name, self.ended = owner, name, False
        self._waiting: queue.Queue[bytes] = queue.Queue(MOST_WAITING)

    def take(self, timeout_s: float) -> bytes | None:
        """The next message, or None when none came in time or the end did."""
        if self.ended:
            return None
        try:
            return self._waiting.get(timeout=timeout_s) or None
        except queue.Empty:
            return None

    def put(self, message: bytes) -> None:
        try:
            self._waiting.put_nowait(message)
        except queue.Full:
            self.end()

    def end(self) -> None:
        self.ended = True
        try:
            self._waiting.put_nowait(b"")  # wakes who waits
        except queue.Full:
            return


class Mailboxes:
    """The mailboxes of this worker, and the way to those of all others. Unavailable when the store is away."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._place = f"mail:{secrets.token_hex(8)}"
        self._boxes: dict[str, Mailbox] = {}
        self._gone: list[Mailbox] = []
        self._collecting = self._leaving = False

    def listen(self, owner: str) -> Mailbox:
        """A new mailbox of `owner`, until `close`."""
        if self._leaving:
            raise Unavailable("This worker is about to end; connect again.", retry_after=1.0)
        box = Mailbox(owner, secrets.token_hex(16))
        self._tell(box)
        self._boxes[box.name] = box
        if not self._collecting:
            self._collecting = True
            spawn(self._collect)
        return box

    def close(self, box: Mailbox) -> None:
        """Nobody listens there any more; asks no store."""
        box.end()
        if self._boxes.pop(box.name, None) is not None:
            self._gone.append(box)

    def count(self, owner: str) -> int:
        """How many mailboxes of `owner` there are, in all workers."""
        return self._documents.count(KIND, _key(owner, ""))

    def find(self, owner: str, name: str) -> str | None:
        """Where the mailbox is, None when `owner` has none of this name."""
        if name in self._boxes and self._boxes[name].owner == owner:
            return self._place
        found = self._documents.get(KIND, _key(owner, name))
        return found.decode() if found is not None else None

    def post(self, place: str, name: str, message: bytes) -> None:
        """Put a message into the mailbox `name` at the place that `find` gave."""
        if place == self._place:
            box = self._boxes.get(name)
            if box is not None:
                box.put(message)
            return
        self._documents.put(place, _key(name, secrets.token_hex(8)), message, MESSAGE_S)

    def leave(self, leaving: bool = True) -> None:
        """End all mailboxes: the worker goes."""
        self._leaving = leaving
        for box in list(self._boxes.values()) if leaving else ():
            self.close(box)

    def _collect(self) -> None:
        """Until nobody listens, once more to tell so."""
        renewed = 0.0
        while self._collecting:
            last = not self._boxes
            try:
                self._fetch()
                renewed += COLLECT_S
                if renewed >= LISTENING_S / 3:
                    renewed = 0.0
                    for box in list(self._boxes.values()):
                        self._tell(box)
                self._forget()
            except Unavailable:
                last = last and not self._boxes
            except Exception:  # One mistake must not leave every listener without messages.
                log.exception("messages of other workers could not be fetched")
            if last and not self._boxes:
                self._collecting = False
                return
            pause(COLLECT_S)

    def _fetch(self) -> None:
        for key, message in self._documents.entries(self._place, MOST_AT_ONCE):
            self._documents.delete(self._place, key)
            box = self._boxes.get(key.partition("/")[0])
            if box is not None:
                box.put(message)

    def _forget(self) -> None:
        while self._gone:
            self._documents.delete(KIND, _key(self._gone[-1].owner, self._gone[-1].name))
            self._gone.pop()

    def _tell(self, box: Mailbox) -> None:
        self._documents.put(KIND, _key(box.owner, box.name), self._place.encode(), LISTENING_S)


def _key(owner: str, name: str) -> str:
    return f"{owner}/{name}"
