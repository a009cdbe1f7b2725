"""The optional Redis: a client with short timeouts and a back-off, and the names of all keys."""

from collections.abc import Callable, Mapping
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from gateway import errors
from gateway.clock import Clock
from gateway.configuration import settings
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.state_changes import INFO, StateChange, StateLog

if TYPE_CHECKING:
    import redis
else:
    redis = LazyImport("redis")

import re
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from gateway.configuration.file import SettingsError
from gateway.configuration.setting_checks import BAD_PERCENT, BLANK, is_host
from gateway.runtime.lazy_import import LazyImport

if TYPE_CHECKING:
    import redis
    import redis.cluster
    import redis.sentinel
else:
    redis = LazyImport("redis")


# Reads REDIS_URL: one server, the Sentinels of a service, or nodes of a cluster.

CONNECTIONS = 8
SENTINEL_PORT = 26379
PORT = 6379
ADDRESS_FORMS = (
    "use redis://host:6379/0, rediss://… or unix://path, redis+sentinel://host1:26379,host2/service/0, "
    "redis+cluster://host1:6379,host2, or leave it unset"
)

AUTHORITY_END = re.compile(r"[/?#]")
MAX_HOSTS = 1000


class AddressError(ValueError):
    """A mistake in an address, in words that quote no part of it."""


# Returns a client; that of a cluster connects when it is created, others on first use.
Connect = Callable[[], Any]


def connector(config: settings.RedisSettings) -> Connect:
    """Return the function that creates the client for the settings' URL. SettingsError for a bad URL."""
    try:
        _check_text(config.url)
        parts = urlsplit(config.url)
        scheme, _, kind = parts.scheme.partition("+")
        if not kind and scheme in ("redis", "rediss", "unix"):
            return _single(config, parts)
        if scheme not in ("redis", "rediss") or kind not in ("sentinel", "cluster"):
            raise AddressError("the scheme is unknown")
        options: dict[str, Any] = {"ssl": scheme == "rediss", **_timeouts(config)}
        credentials: dict[str, Any] = {"username": _decode(parts.username), "password": _decode(parts.password)}
        if kind == "sentinel":
            return _sentinel(parts, options, credentials)
        return _cluster(parts, options | credentials)
    except AddressError as error:
        raise SettingsError(f"REDIS_URL: {error}; {ADDRESS_FORMS}") from None
    except ValueError:  # its text quotes the address
        raise SettingsError(f"REDIS_URL: this address cannot be read; {ADDRESS_FORMS}") from None


def _check_text(url: str) -> None:
    """AddressError for an address in which a part of the password would be read as something else."""
    rest = url.partition("://")[2]
    boundary = AUTHORITY_END.search(rest)
    if BLANK.search(url):
        raise AddressError("an address has no blanks; write one in a password as %20")
    if rest.count("@") > 1 or (boundary and "@" in rest[boundary.start() :]):
        raise AddressError("write /, ?, #, @ and % in a user or password as %2F, %3F, %23, %40 and %25")
    if BAD_PERCENT.search(rest):
        raise AddressError("write a % in the user or password as %25")


def _single(config: settings.RedisSettings, parts: SplitResult) -> Connect:
    if parts.scheme != "unix":
        if parts.netloc.rpartition("@")[2]:
            _hosts(parts, PORT, 1)
        if parts.path.strip("/"):
            _number_of(parts.path.strip("/"))
    pool = redis.BlockingConnectionPool.from_url(
        config.url, max_connections=CONNECTIONS, timeout=config.timeout_s, **_timeouts(config)
    )
    try:
        pool.connection_class(**pool.connection_kwargs)  # does not connect
    except (TypeError, redis.RedisError):
        raise AddressError("an option of this address is unknown or has a bad value") from None
    return partial(redis.Redis, connection_pool=pool)


def _sentinel(parts: SplitResult, options: dict[str, Any], credentials: dict[str, Any]) -> Connect:
    """Return a client that asks the Sentinels for the master on each new connection. The user and password are for
    Redis; the query has those of the Sentinels."""
    service, _, number = parts.path.strip("/").partition("/")
    if not service:
        raise AddressError("the path must name the service")
    query = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    if not query.keys() <= {"sentinel_username", "sentinel_password"}:
        raise AddressError("the query may contain sentinel_username and sentinel_password only")
    access = {name.removeprefix("sentinel_"): value for name, value in query.items()}
    sentinel = redis.sentinel.Sentinel(_hosts(parts, SENTINEL_PORT), sentinel_kwargs=options | access)
    return partial(sentinel.master_for, service, db=_number_of(number or "0"), **options, **credentials)


def _cluster(parts: SplitResult, options: dict[str, Any]) -> Connect:
    if parts.path not in ("", "/", "/0") or parts.query:
        raise AddressError("a cluster has database 0 only, and no options")
    hosts = _hosts(parts, PORT)

    def connect() -> "redis.RedisCluster":
        nodes = [redis.cluster.ClusterNode(host, port) for host, port in hosts]
        return redis.RedisCluster(startup_nodes=nodes, **options)

    return connect


def _hosts(parts: SplitResult, default_port: int, most: int = MAX_HOSTS) -> list[tuple[str, int]]:
    addresses = [urlsplit(f"//{text}") for text in parts.netloc.rpartition("@")[2].split(",")]
    try:
        hosts = [(address.hostname or "", address.port or default_port) for address in addresses]
    except ValueError:
        raise AddressError("a port of this address cannot be one") from None
    if len(hosts) > most:
        raise AddressError("this address names several hosts")
    if not all(host for host, _ in hosts):
        raise AddressError("a host is empty")
    if not all(map(is_host, (host for host, _ in hosts))):
        raise AddressError("a host of this address cannot be one")
    return hosts


def _number_of(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise AddressError("the number of the database must be a whole number")
    return int(text)


def _timeouts(config: settings.RedisSettings) -> dict[str, float]:
    return {"socket_timeout": config.timeout_s, "socket_connect_timeout": config.timeout_s}


def _decode(text: str | None) -> str | None:
    if text is None:
        return None
    return unquote(text)


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


def masked_values(session: str) -> str:
    """Return the key of the encrypted values that guardrails masked in a session, by its hash."""
    return f"{PREFIX}:masked:{session}"


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
