"""The optional Redis: a client with short timeouts and a back-off, and the names of all keys."""

from collections.abc import Callable, Mapping
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from gateway import errors
from gateway.clock import Clock
from gateway.configuration import settings
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.state_changes import INFO, StateChange, StateLog
from gateway.store.redis_addresses import Connect, connector

if TYPE_CHECKING:
    import redis
else:
    redis = LazyImport("redis")


PREFIX = "llmgateway"
# After a failure no other call waits for a timeout during this time.
BACKOFF_S = 1.0
REDIS_AWAY = StateChange(
    "redis.away",
    "redis",
    "Redis does not answer; the gateway serves without it",
    remedy="start it, or check REDIS_URL; meanwhile rate limits are shares of each worker and its cache is not used",
)
REDIS_BACK = StateChange("redis.back", "redis", "Redis answers again", INFO)


def rate_window(scope: str, subject: str, start_s: int) -> str:
    """Return the key of the count of requests or tokens of a subject ("key", "key_1") since `start_s`."""
    return f"{PREFIX}:rate:{scope}:{subject}:{start_s}"


def health(mapping: str) -> str:
    """Return the key of the workers' observations of a mapping."""
    return f"{PREFIX}:health:{mapping}"


def response(digest: str) -> str:
    """Return the key of a cached response."""
    return f"{PREFIX}:response:{digest}"


def realtime_secret(digest: str) -> str:
    """Return the key of a short-lived client secret, by its hash."""
    return f"{PREFIX}:realtime:{digest}"


def alert_claim(digest: str) -> str:
    """Return the key of the claim to send an alert while the database is away."""
    return f"{PREFIX}:alert:{digest}"


def sticky(subject: str) -> str:
    """Return the key of the mapping that a conversation is pinned to."""
    return f"{PREFIX}:sticky:{subject}"


class Redis:
    """The Redis commands that the gateway uses; every write has an expiry.

    Unavailable when the server is down: callers continue without it, since Redis holds nothing about money or identity.
    For background greenlets, not for the hot path.
    """

    def __init__(self, connect: Connect, clock: Clock, states: StateLog | None = None) -> None:
        self._connect = connect
        self._client: Any = None
        self._clock = clock
        self._states = states or StateLog()
        self._backoff_until = 0.0
        self.error = ""

    def connected(self) -> bool:
        """Return whether the server responds now; `error` holds the reason when it does not."""
        self._backoff_until = 0.0
        try:
            return bool(self._call(methodcaller("ping")))
        except errors.Unavailable:
            return False

    def get(self, key: str) -> bytes | None:
        value: bytes | None = self._call(methodcaller("get", key))
        return value

    def put(self, key: str, value: bytes, ttl_s: float) -> None:
        self._call(methodcaller("set", key, value, px=_ms(ttl_s)))

    def put_if_absent(self, key: str, value: bytes, ttl_s: float) -> bool:
        return bool(self._call(methodcaller("set", key, value, px=_ms(ttl_s), nx=True)))

    def delete(self, key: str) -> None:
        self._call(methodcaller("delete", key))

    def add(self, amounts: Mapping[str, int], ttl_s: float) -> dict[str, int]:
        """Add to counters in one round trip and return their totals across all workers."""

        def run(client: "redis.Redis") -> list[int]:
            pipe = client.pipeline(transaction=False)
            for key, amount in amounts.items():
                pipe.incrby(key, amount)
                pipe.pexpire(key, _ms(ttl_s))
            return pipe.execute()[::2]

        if amounts:
            return dict(zip(amounts, self._call(run), strict=True))
        return {}

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _call(self, command: Callable[["redis.Redis"], Any]) -> Any:
        """Run a command with the client. Unavailable when it fails, or during the back-off after a failure."""
        if self._clock.monotonic() < self._backoff_until:
            raise errors.Unavailable("Redis is down.")
        try:
            if self._client is None:
                self._client = self._connect()
            result = command(self._client)
        except (redis.RedisError, redis.exceptions.RedisClusterException, OSError) as error:
            self._backoff_until = self._clock.monotonic() + BACKOFF_S
            self.error = type(error).__name__
            self._states.fire(REDIS_AWAY)
            raise errors.Unavailable("Redis is down.") from error
        if self.error:
            self.error = ""
            self._states.resolve(REDIS_BACK)
        return result


def open_redis(config: settings.RedisSettings, clock: Clock, states: StateLog | None = None) -> Redis | None:
    """Return the client for the settings' URL, or None without one; it connects on first use. SettingsError for a bad
    URL."""
    if not config.url:
        return None
    return Redis(connector(config), clock, states)


def check_url(config: settings.RedisSettings) -> None:
    """SettingsError for an invalid URL. Does not connect."""
    if config.url:
        connector(config)


def answers(config: settings.RedisSettings) -> bool:
    """Return whether a server responds at the URL; True without a URL."""
    client = open_redis(config, Clock())
    if client is None:
        return True
    try:
        return client.connected()
    finally:
        client.close()


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
