"""The response cache: complete answers for projects that enabled it, separate for each project."""

import hashlib
import hmac
import logging
from functools import partial
from typing import Any, NamedTuple, Protocol

import orjson
from msgspec import json, to_builtins

from gateway.billing.context import RequestContext
from gateway.callers.access import keeps_nothing
from gateway.callers.vault import Vault, is_sealed
from gateway.configuration.settings import Cache
from gateway.engine.answer_serialization import build, flatten
from gateway.errors import GatewayError
from gateway.neutral.operations import OPERATIONS
from gateway.neutral.request import Native, Request
from gateway.neutral.usage import Usage
from gateway.routing.decision import Plan
from gateway.runtime.threads import compute_if
from gateway.store import redis as store
from gateway.store.database import Database
from gateway.store.documents import Documents
from gateway.store.redis import Redis

log = logging.getLogger(__name__)

FORMAT_VERSION = 1  # version of the entry format; another release may write another
KIND = "response"
LABEL = b"response-cache\0"
LOCK_TTL_S = 30.0
IDENTITY_FIELDS = frozenset(
    ("metadata", "user", "safety_identifier")
)  # fields that only identify the caller or the end user


class AnswerOrigin(NamedTuple):
    """The origin of a cached answer: the id of the request that it was made for, and the key of the mapping that
    answered."""

    request: str
    mapping: str
    usage: Usage | None
    finish: str
    service_tier: str
    model: str
    upstream_id: str


class CachedAnswer(NamedTuple):
    """A cached answer. Frames are (milliseconds after the previous frame, bytes); a plain answer has one frame."""

    origin: AnswerOrigin
    frames: list[tuple[int, bytes]]

    @property
    def size(self) -> int:
        return sum(len(frame) for _, frame in self.frames)


class CacheStore(Protocol):
    """The storage of cache entries. Every method may raise Unavailable. `lock` returns whether this worker may produce
    the answer, or None where a lock would cost more than it saves."""

    def get(self, key: str) -> bytes | None: ...
    def put(self, key: str, value: bytes, ttl_s: float) -> None: ...
    def lock(self, key: str) -> bool | None: ...
    def unlock(self, key: str) -> None: ...
    def trim(self) -> None: ...


def _hash(native: Native) -> str:
    """Hash a native body without the fields that identify the caller. TypeError for values that cannot be written."""
    content = {name: value for name, value in native.body.items() if name not in IDENTITY_FIELDS}
    return hashlib.sha256(json.encode(content, order="sorted")).hexdigest()


class ResponseCache:
    """The cache of all projects. When the store is down every lookup is a miss, never an error."""

    def __init__(self, store: CacheStore, secret: bytes, settings: Cache) -> None:
        self._store = store
        self._secret = secret
        self._max_bytes = settings.max_entry_bytes

    def key_of(self, context: RequestContext, request: Request, plan: Plan) -> str:
        """Return the cache key of a request, or "" when its answer may neither be read from the cache nor stored.

        The key is an HMAC, with a secret of the project, over the resolved model, the provider if the caller named one,
        and everything that influences the answer, so entries of two projects never collide. Raises InvalidRequest for
        an invalid conversation.
        """
        if not is_cacheable(context) or not OPERATIONS[request.operation].cacheable:
            return ""
        return compute_if(request.large, self._write_key, context, request, plan)

    def _write_key(self, context: RequestContext, request: Request, plan: Plan) -> str:
        options = request.options
        resolution = plan.resolution
        model = plan.first.candidate.model.id
        parts: tuple[Any, ...] = (
            FORMAT_VERSION,
            (context.surface, context.operation, request.native.dialect if request.native else ""),
            (model, resolution.provider, resolution.region),
            request.requirements.stream,
            flatten(request.content()),
            (options.service_tier, options.prompt_cache_key, options.prompt_cache_retention, options.heal),
            (options.image_config, options.extra),
        )
        if options.models or options.provider:
            parts = (*parts, options.models, options.provider)
        try:
            if request.native and request.native.whole:
                parts = (*parts, _hash(request.native))
            text = orjson.dumps(parts, to_builtins, orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
        except TypeError:
            return ""  # a request that cannot be serialized cannot be compared
        own = hmac.digest(self._secret, LABEL + context.caller.project_id.encode(), "sha256")
        return hmac.new(own, text, hashlib.sha256).hexdigest()

    def get(self, key: str) -> CachedAnswer | None:
        """Return the entry, or None for a miss."""
        try:
            payload = self._store.get(key)
            if payload:
                return read_entry(payload)
            return None
        except GatewayError:
            return None
        except (ValueError, KeyError, TypeError):
            log.warning("an entry of the response cache could not be read; the request counts as a miss")
            return None

    def put(self, key: str, entry: CachedAnswer, ttl_s: float) -> None:
        """Store an entry, unless it is too large or the store is down."""
        if entry.size > self._max_bytes:
            return
        try:
            self._store.put(key, write_entry(entry), ttl_s)
        except GatewayError:
            return  # the next request is a miss

    def lock(self, key: str) -> bool | None:
        """Return whether this worker should produce the answer: False while another worker produces it, None where
        there are no locks."""
        try:
            return self._store.lock(key)
        except GatewayError:
            return None

    def unlock(self, key: str) -> None:
        try:
            self._store.unlock(key)
        except GatewayError:
            return  # the lock expires

    def trim(self) -> None:
        """Delete entries above the limit on disk space."""
        self._store.trim()


def is_cacheable(context: RequestContext) -> bool:
    """Return whether the project has caching enabled, the request does not opt out and no policy forbids it."""
    caller = context.caller
    return caller.cache_enabled and not context.options.no_cache and not keeps_nothing(caller.rules)


def write_entry(entry: CachedAnswer) -> bytes:
    frames = [(gap_ms, orjson.Fragment(frame)) for gap_ms, frame in entry.frames]
    return orjson.dumps((FORMAT_VERSION, flatten(tuple(entry.origin)), frames))


def read_entry(payload: bytes) -> CachedAnswer | None:
    """Return an entry, None for one of another release; ValueError, KeyError or TypeError for a malformed one."""
    form, origin, frames = orjson.loads(payload)
    if form != FORMAT_VERSION:
        return None
    return CachedAnswer(AnswerOrigin(*build(origin)), [(gap_ms, orjson.dumps(frame)) for gap_ms, frame in frames])


class EncryptedCacheStore:
    """Encrypts the entries of another store; plain-text entries of earlier releases stay readable."""

    def __init__(self, store: CacheStore, vault: Vault) -> None:
        self._store = store
        self._vault = vault

    def get(self, key: str) -> bytes | None:
        value = self._store.get(key)
        if value and is_sealed(value):
            return self._vault.open_bytes(value)
        return value

    def put(self, key: str, value: bytes, ttl_s: float) -> None:
        self._store.put(key, self._vault.seal_bytes(value), ttl_s)

    def lock(self, key: str) -> bool | None:
        return self._store.lock(key)

    def unlock(self, key: str) -> None:
        self._store.unlock(key)

    def trim(self) -> None:
        self._store.trim()


class RedisCacheStore:
    """Entries in Redis, which limits its own memory."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def get(self, key: str) -> bytes | None:
        return self._redis.get(store.response(key))

    def put(self, key: str, value: bytes, ttl_s: float) -> None:
        self._redis.put(store.response(key), value, ttl_s)

    def lock(self, key: str) -> bool | None:
        return self._redis.put_if_absent(store.response(f"lock:{key}"), b"1", LOCK_TTL_S)

    def unlock(self, key: str) -> None:
        self._redis.delete(store.response(f"lock:{key}"))

    def trim(self) -> None:
        """Do nothing: every entry expires, and Redis has its own memory limit."""


class DocumentCacheStore:
    """Entries as documents, at most `max_bytes` for the whole installation.

    `trim` measures the stored bytes; between two calls a worker adds at most a quarter of the limit.
    """

    def __init__(self, documents: Documents, database: Database, max_bytes: int) -> None:
        self._documents = documents
        self._database = database
        self._max_bytes = max_bytes
        self._room = max_bytes // 4

    def get(self, key: str) -> bytes | None:
        return self._documents.get(KIND, key)

    def put(self, key: str, value: bytes, ttl_s: float) -> None:
        if len(value) <= self._room:
            self._room -= len(value)
            self._documents.put(KIND, key, value, ttl_s)

    def lock(self, key: str) -> bool | None:
        return None

    def unlock(self, key: str) -> None:
        """Do nothing: this store has no locks."""

    def trim(self) -> None:
        """Delete the entries that would expire first until the rest fits. Unavailable when the store is down."""
        sql = "SELECT count(*), coalesce(sum(length(value)), 0) FROM document WHERE kind = ?"
        count, size = self._database.report(partial(self._database.fetch, sql, (KIND,)))[0]
        bounds = {KIND: int(count * self._max_bytes / size)} if size > self._max_bytes else {}
        self._documents.sweep(bounds)
        self._room = self._max_bytes // 4
