"""Reads REDIS_URL: one server, the Sentinels of a service, or nodes of a cluster."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from gateway.configuration import settings
from gateway.runtime.lazy_import import LazyImport

if TYPE_CHECKING:
    import redis
    import redis.cluster
    import redis.sentinel
else:
    redis = LazyImport("redis")

CONNECTIONS = 8
SENTINEL_PORT = 26379
PORT = 6379
ADDRESS_FORMS = (
    "use redis://host:6379/0, rediss://… or unix://path, redis+sentinel://host1:26379,host2/service/0, "
    "redis+cluster://host1:6379,host2, or leave it unset"
)

# Returns a client; that of a cluster connects when it is created, others on first use.
Connect = Callable[[], Any]


def connector(config: settings.RedisSettings) -> Connect:
    """Return the function that creates the client for the settings' URL. SettingsError for a bad URL."""
    try:
        parts = urlsplit(config.url)
        scheme, _, kind = parts.scheme.partition("+")
        if not kind:
            return _single(config)
        if scheme not in ("redis", "rediss") or kind not in ("sentinel", "cluster"):
            raise ValueError(f"unknown scheme {parts.scheme}")
        options: dict[str, Any] = {"ssl": scheme == "rediss", **_timeouts(config)}
        credentials: dict[str, Any] = {"username": _decode(parts.username), "password": _decode(parts.password)}
        if kind == "sentinel":
            return _sentinel(parts, options, credentials)
        return _cluster(parts, options | credentials)
    except ValueError as error:
        raise settings.SettingsError(f"REDIS_URL: {error}; {ADDRESS_FORMS}") from None


def _single(config: settings.RedisSettings) -> Connect:
    pool = redis.BlockingConnectionPool.from_url(
        config.url, max_connections=CONNECTIONS, timeout=config.timeout_s, **_timeouts(config)
    )
    return partial(redis.Redis, connection_pool=pool)


def _sentinel(parts: SplitResult, options: dict[str, Any], credentials: dict[str, Any]) -> Connect:
    """Return a client that asks the Sentinels for the master on each new connection. The user and password are for
    Redis; the query has those of the Sentinels."""
    service, _, number = parts.path.strip("/").partition("/")
    if not service:
        raise ValueError("the path must name the service")
    query = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    if not query.keys() <= {"sentinel_username", "sentinel_password"}:
        raise ValueError("the query may contain sentinel_username and sentinel_password only")
    access = {name.removeprefix("sentinel_"): value for name, value in query.items()}
    sentinel = redis.sentinel.Sentinel(_hosts(parts, SENTINEL_PORT), sentinel_kwargs=options | access)
    return partial(sentinel.master_for, service, db=int(number or 0), **options, **credentials)


def _cluster(parts: SplitResult, options: dict[str, Any]) -> Connect:
    if parts.path not in ("", "/", "/0") or parts.query:
        raise ValueError("a cluster has database 0 only, and no options")
    hosts = _hosts(parts, PORT)

    def connect() -> "redis.RedisCluster":
        nodes = [redis.cluster.ClusterNode(host, port) for host, port in hosts]
        return redis.RedisCluster(startup_nodes=nodes, **options)

    return connect


def _hosts(parts: SplitResult, default_port: int) -> list[tuple[str, int]]:
    addresses = [urlsplit(f"//{text}") for text in parts.netloc.rpartition("@")[2].split(",")]
    hosts = [(address.hostname or "", address.port or default_port) for address in addresses]
    if not all(host for host, _ in hosts):
        raise ValueError("a host is empty")
    return hosts


def _timeouts(config: settings.RedisSettings) -> dict[str, float]:
    return {"socket_timeout": config.timeout_s, "socket_connect_timeout": config.timeout_s}


def _decode(text: str | None) -> str | None:
    if text is None:
        return None
    return unquote(text)
