"""A real gunicorn with the project's own configuration in front of the small applications of served.py."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gevent.socket import socketpair

from gateway.clock import Clock
from gateway.server.connection import CallerConnection
from gateway.server.pulse import Pulse

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]


class Caller:
    """A raw client socket."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self.buffer = b""

    def send(self, data):
        self.socket.sendall(data)
        return self

    def get(self, target, *headers):
        lines = "".join(f"{line}\r\n" for line in headers)
        return self.send(f"GET {target} HTTP/1.1\r\nHost: here\r\n{lines}\r\n".encode())

    def post(self, target, body, *headers):
        lines = "".join(f"{line}\r\n" for line in headers or (f"Content-Length: {len(body)}",))
        return self.send(f"POST {target} HTTP/1.1\r\nHost: here\r\n{lines}\r\n".encode() + body)

    def until(self, mark):
        while mark not in self.buffer:
            data = self.socket.recv(65536)
            assert data, f"the server closed before {mark!r}: {self.buffer!r}"
            self.buffer += data
        found, _, self.buffer = self.buffer.partition(mark)
        return found + mark

    def reply(self):
        """(status, headers, body) of a reply with a length."""
        lines = self.until(b"\r\n\r\n").decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
        length = int(headers.get("content-length", 0))
        while len(self.buffer) < length:
            self.buffer += self.socket.recv(65536)
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        return int(lines[0].split()[1]), headers, body

    def rest(self):
        """All that comes until the server closes."""
        data = self.buffer
        while more := self.socket.recv(65536):
            data += more
        return data

    def close(self):
        self.socket.close()


class Server:
    """gunicorn, one worker, on a free port."""

    def __init__(self, folder, **environment):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.log = folder / "served.log"
        self.log.touch()
        self.errors = folder / "gunicorn.log"
        settings = {"PORT": str(self.port), "WEB_CONCURRENCY": "1", "SERVED_LOG": str(self.log)} | environment
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "--pythonpath", str(HERE), "served:app"],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)} | settings,
            stderr=self.errors.open("w"),
        )
        self._wait_until_ready()

    def _wait_until_ready(self):
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.errors.read_text()
            if "Booting worker" in self.errors.read_text():
                try:
                    return self.call().get("/ready").reply()
                except (OSError, AssertionError):
                    pass
            time.sleep(0.05)
        raise AssertionError(self.errors.read_text())

    def call(self):
        return Caller(self.port)

    def lines(self):
        return self.log.read_text().splitlines()

    def wait_for(self, line, seconds=3.0):
        """The first recorded line that starts so."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for found in self.lines():
                if found.startswith(line):
                    return found
            time.sleep(0.01)
        raise AssertionError(f"{line!r} was never recorded: {self.lines()} {self.errors.read_text()}")

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait(self, seconds=10):
        return self.process.wait(seconds)

    def stop(self):
        if self.process.poll() is None:
            self.signal()
            try:
                self.wait()
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """One for all tests that do not end it; idle connections live two seconds."""
    made = Server(
        tmp_path_factory.mktemp("server"), GATEWAY_SERVER_KEEPALIVE_S="2", GATEWAY_SERVER_GRACEFUL_TIMEOUT_S="2"
    )
    yield made
    made.stop()


@pytest.fixture
def leaving_server(tmp_path):
    """One to be ended, with four seconds of grace."""
    made = Server(tmp_path, GATEWAY_SERVER_GRACEFUL_TIMEOUT_S="4")
    yield made
    made.stop()


@pytest.fixture
def caller(server):
    made = server.call()
    yield made
    made.close()


@pytest.fixture
def pair():
    """A connection of the worker, and its caller's socket."""
    ours, theirs = socketpair()
    connection = CallerConnection(ours, "", Pulse(Clock()))
    yield connection, theirs
    connection.close()
    theirs.close()
