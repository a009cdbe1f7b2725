"""Bodies taken in: those of forms onto the disk where they are large, all others into memory, each within a budget."""

from collections.abc import Callable
from functools import partial

from gateway.files import IN_MEMORY, StoredFile
from gateway.server.connection import CallerConnection
from gateway.server.heads import RequestHead
from gateway.server.http1 import CHUNKED, read_chunked, take_chunks
from gateway.server.intake import UNREAD, BodyBudget, HeldBody
from gateway.settings import Server
from gateway.surfaces.codings import too_large
from gateway.surfaces.wsgi import FREE_BODY, MAX_BODY
from gateway.threads import bulk_turn


class Bodies:
    """Those of a worker, whatever application it serves."""

    def __init__(self, limits: Server) -> None:
        self._memory = BodyBudget(limits.bodies_mb << 20, limits.organization_bodies_mb << 20)
        self._disk = BodyBudget(limits.uploads_mb << 20, limits.organization_uploads_mb << 20)
        self._max_body = self._max_form = MAX_BODY
        self._spool_dir = ""
        self.free = FREE_BODY

    def limit_to(self, application: object) -> None:
        """The caps of an application in bytes, `max_body` and `max_form`, and where large forms of it lie."""
        self._max_body = int(getattr(application, "max_body", MAX_BODY))
        self._max_form = int(getattr(application, "max_form", MAX_BODY))
        self._spool_dir = str(getattr(application, "spool_dir", ""))
        self.free = min(FREE_BODY, self._max_body)

    def gauges(self) -> dict[str, tuple[str, float]]:
        return {
            "bodies_bytes": ("Bytes of long request bodies under way.", self._memory.held),
            "uploads_bytes": ("Bytes of uploads under way, which lie on the disk.", self._disk.held),
        }

    def hold(self, head: RequestHead, length: int, ask: Callable[[], str]) -> HeldBody:
        """Room for a body of `length` bytes, or CHUNKED, whose owner `ask` tells; it is asked when that is due."""
        form = _is_form(head)
        on_disk = form and not 0 < length <= IN_MEMORY
        return HeldBody(self._disk if on_disk else self._memory, ask, -1 if head.coded else self.free)

    def weigh(self, size: int) -> None:
        """Hold `size` more bytes (fewer where it is negative) of requests that are here in part and of which nobody
        knows yet whose they are. Overloaded."""
        self._memory.grow(UNREAD, size)

    def check(self, head: RequestHead, length: int) -> None:
        """RequestTooLarge for a body that is told to be."""
        most = self._max_form if _is_form(head) else self._max_body
        if length > most:
            raise too_large(most)

    def take(
        self, connection: CallerConnection, head: RequestHead, length: int, held: HeldBody
    ) -> "bytes | StoredFile":
        """The whole body; RequestTooLarge, Overloaded, and what the caller's end raises."""
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
    """Append a piece of a long upload once it has its turn."""
    bulk_turn()
    file.write(data)


def _is_form(head: RequestHead) -> bool:
    return head.form and not head.coded
