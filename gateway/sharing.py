"""Where workers share what they know: in Redis where there is one, else in the database."""

from gateway.clock import Clock
from gateway.engine.cache import DocumentShelf, RedisShelf, SealedShelf, Shelf
from gateway.engine.gossip import Board, JournalPins, Pins, RedisBoard, RedisPins, TableBoard
from gateway.services import StoreServices
from gateway.settings import Cache, Settings


def open_pins(store: StoreServices, clock: Clock) -> Pins:
    """Where sessions are remembered for all workers."""
    if store.redis is not None:
        return Pins(RedisPins(store.redis), clock)
    return Pins(JournalPins(store.documents, store.database, store.journal, clock), clock)


def open_shelf(store: StoreServices, cache: Cache) -> Shelf:
    """Where cached answers are kept, encrypted."""
    shelf: Shelf = DocumentShelf(store.documents, store.database, cache.max_bytes)
    if store.redis is not None:
        shelf = RedisShelf(store.redis)
    return SealedShelf(shelf, store.vault)


def find_board(store: StoreServices, settings: Settings) -> Board | None:
    """Where workers exchange health of providers; None for a worker that is surely alone."""
    if store.redis is not None:
        return RedisBoard(store.redis)
    alone = store.database.kind == "sqlite" and settings.server.workers == 1
    return None if alone else TableBoard(store.database)
