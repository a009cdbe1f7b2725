"""Messages between workers: a mailbox belongs to one worker, and every worker can post to it.

A message from the same worker is delivered directly. A message from another worker is a document until the collector of
the receiving worker reads it, which works for workers of one node (SQLite) and of several (PostgreSQL).

Waiting messages are bounded per owner, in a worker's memory and in the store. Each owner has a kind of documents, so
that counting reads only the owner's documents. A worker finds messages for its
mailboxes through small notices at its place.
"""

import logging
import queue
import secrets
from hashlib import sha256

from gateway.errors import Unavailable
from gateway.runtime.threads import pause, spawn
from gateway.store.documents import Documents

log = logging.getLogger(__name__)

# Prefixes of the kinds of documents of an owner (where each mailbox is; waiting messages) and of a worker (notices).
LISTENING = "listen:"
WAITING_PREFIX = "mail:"
MAILBOX_PREFIX = "post:"
POLL_INTERVAL_S = 0.2
BATCH_SIZE = 16  # messages read in one round
MESSAGE_TTL_S = 60.0
# How long a mailbox outlives a worker that died; renewed every third of it.
LISTENER_TTL_S = 60.0
MAX_MESSAGE_BYTES = 8 << 20
MAX_WAITING = 64  # messages of one mailbox; a listener that takes none of them counts as disconnected
MAX_BYTES = 16 << 20
OWNER_WAITING = 256  # messages in all mailboxes of an owner: in a worker, and again in the store
OWNER_BYTES = 32 << 20


class Mailbox:
    """The messages for one listener. `ended`: no more will come; `count` and `size` (bytes) of waiting messages."""

    def __init__(self, owner: str, name: str) -> None:
        self.owner = owner
        self.name = name
        self.ended = False
        self.count = self.size = 0
        self._waiting: queue.Queue[bytes] = queue.Queue()

    def take(self, timeout_s: float) -> bytes | None:
        """Return the next message, or None when none came in time or the mailbox ended."""
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
        """Add a message; returns False and ends the mailbox when it is full."""
        if self.ended or self.count >= MAX_WAITING or self.size + len(message) > MAX_BYTES:
            self.end()
            return False
        self.count += 1
        self.size += len(message)
        self._waiting.put(message)
        return True

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            self._waiting.put(b"")  # wakes the listener


class Mailboxes:
    """The mailboxes of this worker, and access to those of all others. Unavailable when the store is down."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._place = f"{MAILBOX_PREFIX}{secrets.token_hex(8)}"
        self._boxes: dict[str, Mailbox] = {}
        self._by_owner: dict[str, set[Mailbox]] = {}  # by owner
        self._closed: list[Mailbox] = []
        self._collecting = self._leaving = False

    def open(self, owner: str) -> Mailbox:
        """Open a mailbox of `owner`; it exists until `close`."""
        if self._leaving:
            raise Unavailable("This worker is shutting down; connect again.", retry_after=1.0)
        box = Mailbox(owner, secrets.token_hex(16))
        self._notify(box)
        self._boxes[box.name] = box
        self._by_owner.setdefault(owner, set()).add(box)
        if not self._collecting:
            self._collecting = True
            spawn(self._collect)
        return box

    def close(self, box: Mailbox) -> None:
        """Close a mailbox without accessing the store."""
        box.end()
        if self._boxes.pop(box.name, None) is not None:
            own = self._by_owner[box.owner]
            own.discard(box)
            if not own:
                del self._by_owner[box.owner]
            self._closed.append(box)

    def count(self, owner: str) -> int:
        """Return how many mailboxes `owner` has in all workers."""
        return self._documents.measure(_kind(LISTENING, owner))[0]

    def find(self, owner: str, name: str) -> str | None:
        """Return the place of a mailbox, or None when `owner` has none of this name."""
        if name in self._boxes and self._boxes[name].owner == owner:
            return self._place
        place = self._documents.get(_kind(LISTENING, owner), name)
        if place is not None:
            return place.decode()
        return None

    def post(self, owner: str, place: str, name: str, message: bytes) -> bool:
        """Post a message to the mailbox `name` of `owner` at the place that `find` returned; False when it is full."""
        if len(message) > MAX_MESSAGE_BYTES or not self.has_room(owner, place, len(message)):
            return False
        if place == self._place:
            box = self._boxes.get(name)
            return box is None or box.put(message)
        kind = _kind(WAITING_PREFIX, owner)
        key = f"{name}/{secrets.token_hex(8)}"
        self._documents.put(kind, key, message, MESSAGE_TTL_S)
        self._documents.put(place, key, kind.encode(), MESSAGE_TTL_S)
        return True

    def leave(self, leaving: bool = True) -> None:
        """End all mailboxes, because the worker shuts down."""
        self._leaving = leaving
        if leaving:
            for box in list(self._boxes.values()):
                self.close(box)

    def has_room(self, owner: str, place: str, size: int = 1) -> bool:
        """Return whether a message of `size` bytes fits there."""
        if place == self._place:
            return self._has_room(owner, size)
        count, waiting = self._documents.measure(_kind(WAITING_PREFIX, owner))
        return count < OWNER_WAITING and waiting + size <= OWNER_BYTES

    def _has_room(self, owner: str, size: int) -> bool:
        own = self._by_owner.get(owner, ())
        return sum(box.count for box in own) < OWNER_WAITING and sum(box.size for box in own) + size <= OWNER_BYTES

    def _collect(self) -> None:
        """Collect messages until no mailbox is left, and once more to delete the last entries."""
        renewed = 0.0
        while self._collecting:
            last = not self._boxes
            more = False
            try:
                more = self._fetch() == BATCH_SIZE
                if renewed >= LISTENER_TTL_S / 3:
                    renewed = 0.0
                    for box in list(self._boxes.values()):
                        self._notify(box)
                self._forget()
            except Unavailable:
                last = last and not self._boxes
            except Exception:  # one fault must not leave all listeners without messages
                log.exception("messages of other workers could not be fetched")
            if last and not self._boxes:
                self._collecting = False
                return
            if more:
                pause(0)
            else:
                renewed += POLL_INTERVAL_S
                pause(POLL_INTERVAL_S)

    def _fetch(self) -> int:
        """Deliver the messages for this worker, with one at a time in memory; returns how many there were."""
        notices = self._documents.entries(self._place, BATCH_SIZE)
        for key, kind in notices:
            box = self._boxes.get(key.partition("/")[0])
            message = None
            if box is not None:
                message = self._documents.get(kind.decode(), key)
            if box is not None and message is not None:
                if self._has_room(box.owner, len(message)):
                    box.put(message)
                else:
                    box.end()
            self._documents.delete(kind.decode(), key)
            self._documents.delete(self._place, key)
        return len(notices)

    def _forget(self) -> None:
        while self._closed:
            self._documents.delete(_kind(LISTENING, self._closed[-1].owner), self._closed[-1].name)
            self._closed.pop()

    def _notify(self, box: Mailbox) -> None:
        self._documents.put(_kind(LISTENING, box.owner), box.name, self._place.encode(), LISTENER_TTL_S)


def _kind(prefix: str, owner: str) -> str:
    """Return an owner's kind of documents. The owner is hashed, since its id may be longer than a kind can be."""
    return prefix + sha256(owner.encode()).hexdigest()[:24]
