"""Where workers share what they know: in Redis where there is one, else in the database."""

from gateway.clock import Clock
from gateway.configuration.settings import Cache, Settings
from gateway.engine.cache import CacheStore, DocumentCacheStore, EncryptedCacheStore, RedisCacheStore
from gateway.engine.gossip import DatabaseGossipStore, GossipStore, JournalPins, Pins, RedisGossipStore, RedisPins
from gateway.worker.services import StoreServices


def open_pins(store: StoreServices, clock: Clock) -> Pins:
    """Where sessions are remembered for all workers."""
    if store.redis is not None:
        return Pins(RedisPins(store.redis), clock)
    return Pins(JournalPins(store.documents, store.database, store.journal, clock), clock)


def open_cache_store(store: StoreServices, cache: Cache) -> CacheStore:
    """Where cached answers are kept, encrypted."""
    cache_store: CacheStore = DocumentCacheStore(store.documents, store.database, cache.max_bytes)
    if store.redis is not None:
        cache_store = RedisCacheStore(store.redis)
    return EncryptedCacheStore(cache_store, store.vault)


def find_gossip_store(store: StoreServices, settings: Settings) -> GossipStore | None:
    """Where workers exchange health of providers; None for a worker that is surely alone."""
    if store.redis is not None:
        return RedisGossipStore(store.redis)
    alone = store.database.kind == "sqlite" and settings.server.workers == 1
    if alone:
        return None
    return DatabaseGossipStore(store.database)
