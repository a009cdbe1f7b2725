"""Shares routing state between workers and nodes: health in the background, session pins after each request."""

import logging
from collections import deque
from functools import partial
from typing import Any, Protocol

import orjson

from gateway import ids
from gateway.clock import SECOND_US, Clock
from gateway.errors import GatewayError, Unavailable
from gateway.routing.provider_health import Health
from gateway.runtime.threads import Job, spawn
from gateway.store import redis as store
from gateway.store.database import Database
from gateway.store.documents import DocumentRows, Documents
from gateway.store.journal import Journal
from gateway.store.redis import Redis

log = logging.getLogger(__name__)

ROUND_INTERVAL_S = 0.5
RETENTION_S = 60.0
# Deltas are read again for this long, since a delta may become visible after a later one.
OVERLAP_S = 2.0
MAX_UNSENT = 50
BATCH_SIZE = 500
PIN = "pin"
# The longest wait of a request for its session's pin; after it the request is planned like that of a new session.
PIN_READ_TIMEOUT_S = 0.1
BACKOFF_S = 1.0
WAITING_PINS = 10_000


class GossipStore(Protocol):
    """The store through which workers exchange deltas. Both methods may raise Unavailable."""

    def post(self, payload: bytes) -> None: ...
    def collect(self) -> list[tuple[float, bytes]]:
        """Return the deltas of other workers since the last call, as (age in seconds, payload)."""
        ...


class RedisGossipStore:
    """Deltas as numbered values that expire. A number without a visible value is read again."""

    SEQUENCE = store.health("sequence")

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._writer = ids.new_hex().encode()
        self._last = -1
        self._missing: dict[int, int] = {}

    def post(self, payload: bytes) -> None:
        number = self._redis.add({self.SEQUENCE: 1}, RETENTION_S * 10)[self.SEQUENCE]
        self._redis.put(self._name(number), self._writer + payload, RETENTION_S)

    def collect(self) -> list[tuple[float, bytes]]:
        newest = self._redis.add({self.SEQUENCE: 0}, RETENTION_S * 10)[self.SEQUENCE]
        if self._last < 0 or newest < self._last:  # a new worker, or a store that was reset
            self._last = max(0, newest - BATCH_SIZE)
        first = max(self._last, newest - BATCH_SIZE) + 1
        numbers = [*self._missing, *range(first, newest + 1)]
        self._last = newest
        return [(0.0, payload) for number in numbers if (payload := self._fetch(number)) is not None]

    def _fetch(self, number: int) -> bytes | None:
        value = self._redis.get(self._name(number))
        if value is None:
            tries = self._missing.pop(number, 0) + 1
            if tries * ROUND_INTERVAL_S < OVERLAP_S:
                self._missing[number] = tries
            return None
        self._missing.pop(number, None)
        size = len(self._writer)
        if value[:size] == self._writer:
            return None
        return value[size:]

    def _name(self, number: int) -> str:
        return store.health(f"delta:{number}")


class DatabaseGossipStore:
    """Deltas as rows of the database; every post deletes the expired ones."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writer = ids.new_hex()
        self._seq = 0
        self._newest = 0
        self._seen: dict[str, int] = {}

    def post(self, payload: bytes) -> None:
        self._seq += 1
        row = (self._writer, self._seq, payload)
        self._database.write(partial(self._insert, row))

    def collect(self) -> list[tuple[float, bytes]]:
        rows = self._database.read(self._select)
        deltas = []
        for writer, seq, at, age_us, payload in rows:
            self._newest = max(self._newest, at)
            if seq > self._seen.get(writer, 0):
                self._seen[writer] = seq
                deltas.append((max(0.0, age_us / SECOND_US), bytes(payload)))
        if len(self._seen) > BATCH_SIZE:
            self._seen = {row[0]: self._seen[row[0]] for row in rows}
        return deltas

    def _insert(self, row: tuple[str, int, bytes]) -> None:
        run = self._database.execute
        now = self._database.moment_sql()
        run(f"INSERT INTO health_delta (writer, seq, payload, at) VALUES (?, ?, ?, {now})", row)
        run(f"DELETE FROM health_delta WHERE at < {now} - {round(RETENTION_S * SECOND_US)}")

    def _select(self) -> list[tuple[Any, ...]]:
        since = max(0, self._newest - round(OVERLAP_S * SECOND_US))
        now = self._database.moment_sql()
        return self._database.execute(
            f"SELECT writer, seq, at, {now} - at, payload FROM health_delta WHERE at > ? AND writer <> ? ORDER BY at",
            (since, self._writer),
        ).fetchall()


class Gossip:
    """Sends this worker's observations of providers to the other workers and applies theirs.

    `store` None: there are no other workers. While the store is down each worker keeps its own view.
    """

    def __init__(self, health: Health, store: GossipStore | None) -> None:
        self._health = health
        self._store = store
        self._unsent: deque[bytes] = deque(maxlen=MAX_UNSENT)

    def beat(self) -> None:
        """Run one round. Unavailable when the store is down; unsent observations are sent later."""
        if self._store is None:
            return
        delta = self._health.export()
        if delta["windows"] or delta["rests"] or delta["refusals"]:
            self._unsent.append(orjson.dumps(delta))
        while self._unsent:
            self._store.post(self._unsent[0])
            self._unsent.popleft()
        for age_s, payload in self._store.collect():
            self._merge(payload, age_s)

    def _merge(self, payload: bytes, age_s: float) -> None:
        try:
            self._health.merge(orjson.loads(payload), age_s)
        except (ValueError, TypeError, KeyError):
            log.warning("the provider state of another worker could not be read")


class Pins:
    """Session pins beyond one worker's memory: routing's `Store`, backed by a PinStore. Reads are bounded in time;
    writes never wait."""

    def __init__(self, store: "PinStore", clock: Clock, read_s: float = PIN_READ_TIMEOUT_S) -> None:
        self._store = store
        self._clock = clock
        self._read_s = read_s
        self._backoff_until = 0.0

    def get(self, key: str) -> str | None:
        """Return the pin. Unavailable when the store does not respond in time, and for a moment afterwards."""
        if self._clock.monotonic() < self._backoff_until:
            raise Unavailable()
        try:
            value = Job(self._store.get, key).result(self._read_s)
        except (TimeoutError, GatewayError):
            self._backoff_until = self._clock.monotonic() + BACKOFF_S
            raise Unavailable() from None
        if value:
            return value.decode()
        return None

    def put(self, key: str, value: str, ttl_s: float) -> None:
        """Queue a pin to be stored. Unavailable when too many writes are queued."""
        self._store.put(key, value.encode(), ttl_s)


class PinStore(Protocol):
    def get(self, key: str) -> bytes | None: ...
    def put(self, key: str, value: bytes, ttl_s: float) -> None: ...


class JournalPins:
    """Pins as documents, written in the group commits of the journal, without separate transactions."""

    def __init__(self, documents: Documents, database: Database, journal: Journal, clock: Clock) -> None:
        self._documents = documents
        self._journal = journal
        self._rows = DocumentRows(database, clock)

    def get(self, key: str) -> bytes | None:
        return self._documents.get(PIN, key)

    def put(self, key: str, value: bytes, ttl_s: float) -> None:
        self._journal.append(self._rows.put(PIN, key, value, ttl_s))


class RedisPins:
    """Pins in redis, written by a dedicated greenlet."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._waiting: dict[str, tuple[bytes, float]] = {}
        self._task: Any = None

    def get(self, key: str) -> bytes | None:
        waiting = self._waiting.get(key)
        if waiting:
            return waiting[0]
        return self._redis.get(store.sticky(key))

    def put(self, key: str, value: bytes, ttl_s: float) -> None:
        if len(self._waiting) >= WAITING_PINS:
            raise Unavailable("Too many sessions wait to be written.")
        self._waiting[key] = (value, ttl_s)
        if self._task is None or self._task.dead:
            self._task = spawn(self._flush)

    def _flush(self) -> None:
        while self._waiting:
            key = next(iter(self._waiting))
            value, ttl_s = self._waiting.pop(key)
            try:
                self._redis.put(store.sticky(key), value, ttl_s)
            except Unavailable:
                self._waiting.clear()  # a pin is a convenience: it still holds in this worker
