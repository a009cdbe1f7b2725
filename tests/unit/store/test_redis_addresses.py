"""REDIS_URL with a real Sentinel that promotes a replica, and with a real cluster of two nodes."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from subprocess import Popen

import pytest
import redis as library
from support.gateways import free_port
from support.servers import run_redis_process

from gateway import errors
from gateway.clock import Clock
from gateway.configuration.effective_values import mask
from gateway.configuration.settings import RedisSettings, SettingsError
from gateway.store import redis

HOST = "127.0.0.1"
WAIT_S = 15.0


def wait_for(done: Callable[[], object]) -> None:
    until = time.monotonic() + WAIT_S
    while True:
        try:
            if done():
                return
        except (library.RedisError, errors.Unavailable):
            pass
        assert time.monotonic() < until, "the servers did not get ready"
        time.sleep(0.05)


def is_open(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex((HOST, port)) == 0


class Servers:
    """Redis processes on ports of this host."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.processes: dict[int, Popen[bytes]] = {}

    def start(self, *options: str) -> int:
        port = free_port()
        self.processes[port] = self._stack.enter_context(run_redis_process("--port", str(port), *options))
        wait_for(lambda: is_open(port))
        return port

    def client(self, port: int) -> library.Redis:
        return self._stack.enter_context(library.Redis(HOST, port))

    def open(self, url: str) -> redis.Redis:
        opened = redis.open_redis(RedisSettings(url, 2.0), Clock())
        assert opened is not None
        self._stack.callback(opened.close)
        return opened


@pytest.fixture
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


@pytest.mark.slow
def test_the_replica_that_a_sentinel_promotes_is_used(servers: Servers) -> None:
    secret = ("--requirepass", "secret", "--masterauth", "secret")
    first = servers.start(*secret)
    second = servers.start(*secret, "--replicaof", HOST, str(first))
    sentinel = servers.start("--sentinel")
    control = servers.client(sentinel)
    control.execute_command("SENTINEL MONITOR", "main", HOST, first, 1)
    for name, value in (("auth-pass", "secret"), ("down-after-milliseconds", 300), ("failover-timeout", 3000)):
        control.execute_command("SENTINEL SET", "main", name, value)
    client = servers.open(f"redis+sentinel://:secret@{HOST}:{free_port()},{HOST}:{sentinel}/main/1")
    client.put("a", b"1", 60)
    assert client.get("a") == b"1"
    wait_for(lambda: control.sentinel_slaves("main"))
    servers.processes[first].kill()
    wait_for(lambda: client.connected() and client.put_if_absent("b", b"2", 60))
    replica = library.Redis(HOST, second, db=1, password="secret")
    assert replica.get("b") == b"2"
    replica.close()


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
    client.put_fields("h", {"a": b"1"}, 60)
    assert client.fields("h") == {"a": b"1"}
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
    assert "one" not in mask(url) and "two" not in mask(url) and "a,b/service/0" in mask(url)
