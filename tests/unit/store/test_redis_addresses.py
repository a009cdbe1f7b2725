"""REDIS_URL with a real Sentinel that promotes a replica, and with a real cluster of two nodes."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from support.gateways import free_port
from support.redis_servers import HOST, MASTER, PASSWORD, RedisServers, wait_for

from gateway import errors
from gateway.clock import Clock
from gateway.configuration.settings import RedisSettings, SettingsError
from gateway.secret_text import mask_address
from gateway.store import redis


class Servers(RedisServers):
    """Redis processes, and the gateway's clients of them."""

    def open(self, url: str) -> redis.Redis:
        opened = redis.open_redis(RedisSettings(url, 2.0), Clock())
        assert opened is not None
        self._stack.callback(opened.close)
        return opened


@pytest.fixture
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


@pytest.mark.extended
def test_the_replica_that_a_sentinel_promotes_is_used(servers: Servers) -> None:
    first, second, sentinel = servers.start_replicated()
    client = servers.open(f"redis+sentinel://:{PASSWORD}@{HOST}:{free_port()},{HOST}:{sentinel}/{MASTER}/1")
    client.put("a", b"1", 60)
    assert client.get("a") == b"1"
    servers.processes[first].kill()
    wait_for(lambda: client.connected() and client.put_if_absent("b", b"2", 60))
    assert servers.client(second, PASSWORD, db=1).get("b") == b"2"


@pytest.mark.slow
def test_the_keys_of_a_cluster_are_at_their_nodes(servers: Servers) -> None:
    ports = [servers.start("--cluster-enabled", "yes") for _ in range(2)]
    nodes = [servers.client(port) for port in ports]
    nodes[0].execute_command("CLUSTER ADDSLOTS", *range(8192))
    nodes[1].execute_command("CLUSTER ADDSLOTS", *range(8192, 16384))
    nodes[0].execute_command("CLUSTER MEET", HOST, ports[1])
    for node in nodes:
        wait_for(lambda node=node: node.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
    client = servers.open(f"redis+cluster://{HOST}:{free_port()},{HOST}:{ports[1]}")
    amounts = {redis.rate_window("key", f"key_{number}", 60): number for number in range(1, 20)}
    assert client.add(amounts, 60) == amounts
    assert all(node.dbsize() for node in nodes)


def test_a_cluster_that_is_away_is_unavailable_and_is_tried_again() -> None:
    client = redis.open_redis(RedisSettings(f"redis+cluster://{HOST}:{free_port()}", 0.2), Clock())
    assert client is not None
    assert not client.connected()
    with pytest.raises(errors.Unavailable):
        client.get("a")
    client.close()


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://host",
        "redis+sentinel://host/",
        "redis+sentinel://host,/service",
        "redis+sentinel://host:port/service",
        "redis+sentinel://host/service/one",
        "redis+sentinel://host/service?password=x",
        "redis+cluster://host/1",
        "redis+cluster:///0",
        "redis+other://host",
        "http+sentinel://host/service",
    ],
)
def test_a_bad_address_is_refused_with_the_forms(url: str) -> None:
    with pytest.raises(SettingsError, match=r"REDIS_URL: .*redis\+sentinel://host1"):
        redis.check_url(RedisSettings(url, 0.5))


def test_passwords_of_several_servers_are_masked() -> None:
    url = "redis+sentinel://user:one@a,b/service/0?sentinel_password=two"
    redis.check_url(RedisSettings(url, 0.5))
    assert "one" not in mask_address(url) and "two" not in mask_address(url) and "a,b/service/0" in mask_address(url)
