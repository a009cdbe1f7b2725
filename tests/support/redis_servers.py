"""Redis servers, Sentinels and cluster nodes on ports of this host, which tests stop one by one."""

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from subprocess import Popen

import redis
from support.gateways import free_port
from support.servers import run_redis_process

from gateway import errors

HOST = "127.0.0.1"
WAIT_S = 60.0
PASSWORD = "secret"
MASTER = "main"
SENTINEL_SETTINGS = {"auth-pass": PASSWORD, "down-after-milliseconds": 300, "failover-timeout": 3000}


def wait_for(done: Callable[[], object]) -> None:
    """Wait until `done` is true. Servers that do not answer yet count as false."""
    until = time.monotonic() + WAIT_S
    while True:
        try:
            if done():
                return
        except (redis.RedisError, errors.Unavailable):
            pass
        assert time.monotonic() < until, "the servers did not get ready"
        time.sleep(0.05)


def is_open(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex((HOST, port)) == 0


class RedisServers:
    """Redis processes by port. They end with `stack`."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.processes: dict[int, Popen[bytes]] = {}

    def start(self, *options: str) -> int:
        port = free_port()
        self.processes[port] = self._stack.enter_context(run_redis_process("--port", str(port), *options))
        wait_for(lambda: is_open(port))
        return port

    def client(self, port: int, password: str | None = None, db: int = 0) -> redis.Redis:
        return self._stack.enter_context(redis.Redis(HOST, port, db=db, password=password))

    def start_replicated(self) -> tuple[int, int, int]:
        """Start a master, its replica and a Sentinel that watches them; returns their ports. `PASSWORD` is that of the
        first two, `MASTER` the name that the Sentinel knows."""
        secret = ("--requirepass", PASSWORD, "--masterauth", PASSWORD)
        master = self.start(*secret)
        replica = self.start(*secret, "--replicaof", HOST, str(master))
        sentinel = self.start("--sentinel")
        control = self.client(sentinel)
        control.execute_command("SENTINEL MONITOR", MASTER, HOST, master, 1)
        for name, value in SENTINEL_SETTINGS.items():
            control.execute_command("SENTINEL SET", MASTER, name, value)
        wait_for(lambda: control.sentinel_slaves(MASTER))
        return master, replica, sentinel
