"""A real gunicorn with the project's own configuration in front of the small applications of served.py."""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from support.warm import WarmProcess

ROOT = Path(__file__).resolve().parents[2]
GRACE_S = 20  # of servers that a test ends
APPLICATIONS = ROOT / "tests" / "unit" / "server"  # of served.py


class Caller:
    """A raw client socket."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.buffer = b""

    def send(self, data):
        self.socket.sendall(data)
        return self

    def get(self, target, *headers):
        lines = "".join(f"{header}\r\n" for header in headers)
        return self.send(f"GET {target} HTTP/1.1\r\nHost: here\r\n{lines}\r\n".encode())

    def post(self, target, body, *headers):
        lines = "".join(f"{header}\r\n" for header in headers or (f"Content-Length: {len(body)}",))
        return self.send(f"POST {target} HTTP/1.1\r\nHost: here\r\n{lines}\r\n".encode() + body)

    def until(self, mark):
        while mark not in self.buffer:
            data = self.socket.recv(65536)
            assert data, f"the server closed before {mark!r}: {self.buffer!r}"
            self.buffer += data
        found, _, self.buffer = self.buffer.partition(mark)
        return found + mark

    def reply(self):
        """Read a reply with a content length as (status, headers, body)."""
        lines = self.until(b"\r\n\r\n").decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (header.partition(": ") for header in lines[1:] if header)}
        length = int(headers.get("content-length", 0))
        while len(self.buffer) < length:
            self.buffer += self.socket.recv(65536)
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        return int(lines[0].split()[1]), headers, body

    def rest(self):
        """Read until the server closes the connection."""
        data = self.buffer
        while more := self.socket.recv(65536):
            data += more
        return data

    def close(self):
        self.socket.close()


class Server:
    """A gunicorn with one worker on a free port."""

    def __init__(self, folder, **environment):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.log = folder / "served.log"
        self.log.touch()
        self.errors = folder / "gunicorn.log"
        settings = {"PORT": str(self.port), "WEB_CONCURRENCY": "1", "SERVED_LOG": str(self.log)} | environment
        command = ["gunicorn", "--pythonpath", str(APPLICATIONS), "served:app"]
        with self.errors.open("w") as errors:
            self.process = WarmProcess(command, {"PATH": os.environ["PATH"]} | settings, errors, errors)
        try:
            self._wait_until_ready()
        except BaseException:
            self.process.kill()
            raise

    def _wait_until_ready(self):
        deadline = time.monotonic() + 240
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

    def wait_for(self, text, seconds=60.0):
        """Return the first recorded line that starts with `line`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for found in self.lines():
                if found.startswith(text):
                    return found
            time.sleep(0.01)
        raise AssertionError(f"{text!r} was never recorded: {self.lines()} {self.errors.read_text()}")

    def workers(self):
        """Return the process ids of the workers."""
        return Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait(self, seconds=60):
        return self.process.wait(seconds)

    def stop(self):
        if self.process.poll() is None:
            self.signal()
            try:
                self.wait()
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
