"""Reads request bodies: large forms to disk, everything else into memory, each within a budget."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from gateway.configuration.settings import Server
from gateway.runtime.byte_budget import UNATTRIBUTED, ByteBudget, HeldBytes
from gateway.runtime.large_files import IN_MEMORY, StoredFile
from gateway.runtime.loop_turns import bulk_turn
from gateway.runtime.threads import hold, work_owner
from gateway.server.connection import CallerConnection
from gateway.server.http1 import CHUNKED, read_chunked, take_chunks
from gateway.server.request_heads import RequestHead
from gateway.surfaces.web.request_decompression import too_large
from gateway.surfaces.web.wsgi import FREE_BODY, MAX_BODY
from gateway.transport.addresses import network_of

# Limits on the resources that callers occupy in a worker: bytes of request bodies, and connections per address.

UNREAD_OWNER = "unread"  # owner of incomplete requests, which cannot be attributed yet


class BodyReservation(HeldBytes):
    """The bytes that one request reserves. `ask` returns its owner from its head; it is called, and may refuse, when
    the request holds more than `free` bytes."""

    __slots__ = ("_ask", "_max_free")

    def __init__(self, bodies: ByteBudget, ask: Callable[[], str], free: int) -> None:
        super().__init__(bodies)
        self._ask = ask
        self._max_free = free

    def grow(self, size: int) -> None:
        """Reserve `size` more bytes. Overloaded (see `ByteBudget.grow`), and the errors of `ask`."""
        if not self._owner and self._size + size > self._max_free:
            owner = self._ask()
            held = self._size
            self.free()
            self._owner = owner or UNATTRIBUTED
            size += held
        super().grow(size)


class ConnectionCounts:
    """The number of connections per caller address, at most `maximum` each (0: unlimited). Addresses that `shared`
    accepts are not limited."""

    def __init__(self, maximum: int, shared: Callable[[str], bool]) -> None:
        self._maximum = maximum
        self._shared = shared
        self._open: dict[str, int] = {}

    def enter(self, address: str) -> bool:
        """Count one more connection; False, counting nothing, when that is too many."""
        if not self._maximum or self._shared(address):
            return True
        place = network_of(address)
        count = self._open.get(place, 0)
        if count >= self._maximum:
            return False
        self._open[place] = count + 1
        return True

    def leave(self, address: str) -> None:
        """Count one connection fewer."""
        place = network_of(address)
        left = self._open.get(place, 0) - 1
        if left > 0:
            self._open[place] = left
        else:
            self._open.pop(place, None)


class RequestBodies:
    """The body reader of a worker, with its memory and disk budgets."""

    def __init__(self, limits: Server) -> None:
        self.memory = ByteBudget(limits.bodies_mb << 20, limits.organization_bodies_mb << 20)
        self._disk = ByteBudget(limits.uploads_mb << 20, limits.organization_uploads_mb << 20)
        self._max_body = self._max_form = MAX_BODY
        self._spool_dir = ""
        self.free = FREE_BODY

    def limit_to(self, application: object) -> None:
        """Use an application's limits: `max_body` and `max_form` in bytes, the folder for large forms, and the budget
        of large bodies."""
        self._max_body = int(getattr(application, "max_body", MAX_BODY))
        self._max_form = int(getattr(application, "max_form", MAX_BODY))
        self._spool_dir = str(getattr(application, "spool_dir", ""))
        self.memory = getattr(application, "bodies", self.memory)
        self.free = min(FREE_BODY, self._max_body)

    def gauges(self) -> dict[str, tuple[str, float]]:
        return {
            "bodies_bytes": ("Bytes of long request bodies and answers under way.", self.memory.held),
            "uploads_bytes": ("Bytes of uploads under way, which lie on the disk.", self._disk.held),
        }

    @contextmanager
    def hold(self, head: RequestHead, length: int, ask: Callable[[], str]) -> Iterator[BodyReservation]:
        """Hold a body of `length` bytes, or CHUNKED, in this greenlet and those that it starts. `ask` returns the owner
        and is called only when needed."""
        form = _is_form(head)
        on_disk = form and not 0 < length <= IN_MEMORY
        held = BodyReservation(self._disk if on_disk else self.memory, ask, -1 if head.coded else self.free)
        hold(held)
        try:
            yield held
        finally:
            hold(None)
            held.release()

    def weigh(self, size: int) -> None:
        """Count `size` more bytes (negative: fewer) of incomplete requests without a known owner. Overloaded."""
        self.memory.grow(UNREAD_OWNER, size)

    @contextmanager
    def answer(self, size: int) -> Iterator[None]:
        """Count the bytes of a response until its caller has received them. Overloaded."""
        owner = work_owner() or UNATTRIBUTED
        memory = self.memory
        memory.grow(owner, size)
        try:
            yield
        finally:
            memory.grow(owner, -size)

    def check(self, head: RequestHead, length: int) -> None:
        """RequestTooLarge when the declared length is over the limit."""
        maximum = self._max_form if _is_form(head) else self._max_body
        if length > maximum:
            raise too_large(maximum)

    def take(
        self, connection: CallerConnection, head: RequestHead, length: int, held: BodyReservation
    ) -> "bytes | StoredFile":
        """Return the whole body. RequestTooLarge, Overloaded, or ConnectionError when the caller disconnects."""
        if not _is_form(head):
            if length == CHUNKED:
                return read_chunked(connection, self._max_body, held.grow)
            return connection.take(length)
        if length == CHUNKED:
            file = StoredFile(self._spool_dir, in_memory=0)
            take_chunks(connection, self._max_form, partial(_store, file), held.grow)
            return file
        file = StoredFile(self._spool_dir)
        connection.take_to(file.write if length <= IN_MEMORY else partial(_store, file), length)
        return file


def _store(file: StoredFile, data: bytes) -> None:
    """Append a piece of a large upload when it is this greenlet's turn."""
    bulk_turn()
    file.write(data)


def _is_form(head: RequestHead) -> bool:
    return head.form and not head.coded
