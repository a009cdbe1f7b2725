"""Messages to whoever listens in any worker: a mailbox belongs to one worker, and every worker can put something in.

What comes from the same worker is handed over at once; what comes from another one is a document until the collector of
the listening worker finds it, so that workers of one node (SQLite) and of several (PostgreSQL) find each other.

What waits is bounded for each owner, in the memory of a worker and in the store: to count it reads the owner's own
documents alone, which have a kind of their own. A worker finds those that are meant for it by small notices at its
place.
"""

import logging
import queue
import secrets
from hashlib import sha256

from gateway.errors import Unavailable
from gateway.runtime.threads import pause, spawn
from gateway.store.documents import Documents

log = logging.getLogger(__name__)

# Kinds of documents, each of one owner: where they listen, by mailbox, and what waits for them.
LISTENING = "listen:"
WAITING = "mail:"
PLACE = "post:"  # and of one worker: notices of what is meant for it
COLLECT_S = 0.2
MOST_AT_ONCE = 16  # messages read in one round
MESSAGE_S = 60.0
# How long somebody counts as listening whose worker died; renewed at every third of it.
LISTENING_S = 60.0
LONGEST_MESSAGE = 8 << 20
MOST_WAITING, MOST_BYTES = 64, 16 << 20  # that nobody took yet, of one mailbox; one who takes none is no listener
OWNER_WAITING, OWNER_BYTES = 256, 32 << 20  # of all mailboxes of an owner: in a worker, and again in the store


class Mailbox:
    """What one listener gets. `ended`: nothing comes any more; `count` and `size` (bytes) are of what waits."""

    def __init__(self, owner: str, name: str) -> None:
        self.owner = owner
        self.name = name
        self.ended = False
        self.count = self.size = 0
        self._waiting: queue.Queue[bytes] = queue.Queue()

    def take(self, timeout_s: float) -> bytes | None:
        """The next message, or None when none came in time or the end did."""
        if self.ended:
            return None
        try:
            message = self._waiting.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if not message:
            return None
        self.count -= 1
        self.size -= len(message)
        return message

    def put(self, message: bytes) -> bool:
        """Whether there was room; where there is none, the mailbox ends."""
        if self.ended or self.count >= MOST_WAITING or self.size + len(message) > MOST_BYTES:
            self.end()
            return False
        self.count += 1
        self.size += len(message)
        self._waiting.put(message)
        return True

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            self._waiting.put(b"")  # wakes who waits


class Mailboxes:
    """The mailboxes of this worker, and the way to those of all others. Unavailable when the store is away."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._place = f"{PLACE}{secrets.token_hex(8)}"
        self._boxes: dict[str, Mailbox] = {}
        self._of: dict[str, set[Mailbox]] = {}  # by owner
        self._gone: list[Mailbox] = []
        self._collecting = self._leaving = False

    def listen(self, owner: str) -> Mailbox:
        """A new mailbox of `owner`, until `close`."""
        if self._leaving:
            raise Unavailable("This worker is about to end; connect again.", retry_after=1.0)
        box = Mailbox(owner, secrets.token_hex(16))
        self._notify(box)
        self._boxes[box.name] = box
        self._of.setdefault(owner, set()).add(box)
        if not self._collecting:
            self._collecting = True
            spawn(self._collect)
        return box

    def close(self, box: Mailbox) -> None:
        """Nobody listens there any more; asks no store."""
        box.end()
        if self._boxes.pop(box.name, None) is not None:
            own = self._of[box.owner]
            own.discard(box)
            if not own:
                del self._of[box.owner]
            self._gone.append(box)

    def count(self, owner: str) -> int:
        """How many mailboxes of `owner` there are, in all workers."""
        return self._documents.measure(_kind(LISTENING, owner))[0]

    def find(self, owner: str, name: str) -> str | None:
        """Where the mailbox is, None when `owner` has none of this name."""
        if name in self._boxes and self._boxes[name].owner == owner:
            return self._place
        found = self._documents.get(_kind(LISTENING, owner), name)
        if found is not None:
            return found.decode()
        return None

    def post(self, owner: str, place: str, name: str, message: bytes) -> bool:
        """Put a message into the mailbox `name` of `owner` at the place that `find` gave; whether there was room for
        it."""
        if len(message) > LONGEST_MESSAGE or not self.has_room(owner, place, len(message)):
            return False
        if place == self._place:
            box = self._boxes.get(name)
            return box is None or box.put(message)
        kind = _kind(WAITING, owner)
        key = f"{name}/{secrets.token_hex(8)}"
        self._documents.put(kind, key, message, MESSAGE_S)
        self._documents.put(place, key, kind.encode(), MESSAGE_S)
        return True

    def leave(self, leaving: bool = True) -> None:
        """End all mailboxes: the worker goes."""
        self._leaving = leaving
        for box in list(self._boxes.values()) if leaving else ():
            self.close(box)

    def has_room(self, owner: str, place: str, size: int = 1) -> bool:
        """Whether a message of so many bytes has room there."""
        if place == self._place:
            return self._has_room(owner, size)
        count, waiting = self._documents.measure(_kind(WAITING, owner))
        return count < OWNER_WAITING and waiting + size <= OWNER_BYTES

    def _has_room(self, owner: str, size: int) -> bool:
        own = self._of.get(owner, ())
        return sum(box.count for box in own) < OWNER_WAITING and sum(box.size for box in own) + size <= OWNER_BYTES

    def _collect(self) -> None:
        """Until nobody listens, once more to tell so."""
        renewed = 0.0
        while self._collecting:
            last = not self._boxes
            more = False
            try:
                more = self._fetch() == MOST_AT_ONCE
                if renewed >= LISTENING_S / 3:
                    renewed = 0.0
                    for box in list(self._boxes.values()):
                        self._notify(box)
                self._forget()
            except Unavailable:
                last = last and not self._boxes
            except Exception:  # One mistake must not leave every listener without messages.
                log.exception("messages of other workers could not be fetched")
            if last and not self._boxes:
                self._collecting = False
                return
            renewed += 0 if more else COLLECT_S
            pause(0 if more else COLLECT_S)

    def _fetch(self) -> int:
        """Hand over what came for this worker, one message at a time in memory; how many there were."""
        found = self._documents.entries(self._place, MOST_AT_ONCE)
        for key, kind in found:
            box = self._boxes.get(key.partition("/")[0])
            if box is not None:
                message = self._documents.get(kind.decode(), key)
            else:
                message = None
            if box is not None and message is not None:
                if self._has_room(box.owner, len(message)):
                    box.put(message)
                else:
                    box.end()
            self._documents.delete(kind.decode(), key)
            self._documents.delete(self._place, key)
        return len(found)

    def _forget(self) -> None:
        while self._gone:
            self._documents.delete(_kind(LISTENING, self._gone[-1].owner), self._gone[-1].name)
            self._gone.pop()

    def _notify(self, box: Mailbox) -> None:
        self._documents.put(_kind(LISTENING, box.owner), box.name, self._place.encode(), LISTENING_S)


def _kind(of: str, owner: str) -> str:
    """A kind of documents of one owner. Ids of owners may be longer than the name of a kind."""
    return of + sha256(owner.encode()).hexdigest()[:24]
