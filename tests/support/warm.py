"""Starts programs of the gateway with imported modules.

The imports of `python -m gateway.operator.command serve` take a second of processor time, those of each worker 0.7
seconds. Here a process that has imported the modules is forked instead. Arguments, environment, folder, signals and
gunicorn are the real ones. Tests of the start itself use subprocess.Popen.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("warm_source.py")
CLIENT = Path(__file__).with_name("warm_client.py")


class WarmProcess:
    """Replaces a subprocess.Popen of `python -m <words>`, with the members that tests use."""

    def __init__(self, words: list[str], environment: dict[str, str], stdout: Any, stderr: Any) -> None:
        self.args = words
        self.returncode: int | None = None
        self._line, theirs = socket.socketpair()
        self._told = b""
        given = {"words": words, "environment": environment, "folder": str(ROOT)}
        with theirs:
            _source().send(given, [stdout.fileno(), stderr.fileno(), theirs.fileno()])
        self._line.settimeout(300)  # the forking process imports all modules first, on a busy machine
        self.pid = self._read()

    def poll(self) -> int | None:
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._line.settimeout(timeout)
            try:
                self.returncode = self._read()
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0) from None
            self._line.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _read(self) -> int:
        while b"\n" not in self._told:
            more = self._line.recv(100)
            assert more, f"{self.args} was lost"
            self._told += more
        number, _, self._told = self._told.partition(b"\n")
        return int(number)


def run(words: list[str], environment: dict[str, str], timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run `python -m <words>` and return the same as subprocess.run with its output captured as text."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        code = WarmProcess(words, environment, output, errors).wait(timeout)
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(words, code, output.read(), errors.read())


def shell_command(module: str) -> tuple[str, int]:
    """Return a shell command that does the same as `python -m <module>`, and the descriptor that it inherits."""
    descriptor = _source().descriptor
    return f'"{sys.executable}" -I -S "{CLIENT}" {descriptor} {module}', descriptor


class _Source:
    """The process that forks programs, and the socket to it."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(SOURCE), str(theirs.fileno())],
                cwd=ROOT,
                env={"PATH": os.environ["PATH"]},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    @property
    def descriptor(self) -> int:
        return self._control.fileno()

    def send(self, given: dict[str, Any], descriptors: list[int]) -> None:
        socket.send_fds(self._control, [json.dumps(given).encode()], descriptors)

    def close(self) -> None:
        self._control.close()
        if os.getpid() == self._owner and self._process.poll() is None:
            self._process.wait()


def begin() -> None:
    """Start the forking process early; processes that are forked from here share it."""
    _source()


def end() -> None:
    """End the forking process if this process started it."""
    if _source.cache_info().currsize:
        _source().close()
        _source.cache_clear()


@cache
def _source() -> _Source:
    made = _Source()
    atexit.register(made.close)
    return made
