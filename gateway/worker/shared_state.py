"""Storage that workers share: Redis if configured, otherwise the database."""

from gateway.clock import Clock
from gateway.configuration.settings import Cache, Settings
from gateway.engine.cache import CacheStore, DocumentCacheStore, EncryptedCacheStore, RedisCacheStore
from gateway.engine.gossip import DatabaseGossipStore, GossipStore, JournalPins, Pins, RedisGossipStore, RedisPins
from gateway.worker.services import StoreServices


def open_pins(store: StoreServices, clock: Clock) -> Pins:
    """Return the storage of sticky sessions for all workers."""
    if store.redis is not None:
        return Pins(RedisPins(store.redis), clock)
    return Pins(JournalPins(store.documents, store.database, store.journal, clock), clock)


def open_cache_store(store: StoreServices, cache: Cache) -> CacheStore:
    """Return the encrypted storage of cached responses."""
    cache_store: CacheStore = DocumentCacheStore(store.documents, store.database, cache.max_bytes)
    if store.redis is not None:
        cache_store = RedisCacheStore(store.redis)
    return EncryptedCacheStore(cache_store, store.vault)


def find_gossip_store(store: StoreServices, settings: Settings) -> GossipStore | None:
    """Return the exchange of provider health between workers; None if there is only one worker."""
    if store.redis is not None:
        return RedisGossipStore(store.redis)
    alone = store.database.kind == "sqlite" and settings.server.workers == 1
    if alone:
        return None
    return DatabaseGossipStore(store.database)
