"""Runs the client as a person or a script does: with pipes, or on a pseudo-terminal of a given width."""

import atexit
import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self

SOURCE = Path(__file__).with_name("client_source.py")
PATIENCE_S = 30.0
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


@dataclass(frozen=True)
class Finished:
    """A run that has ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """The decoded data of a run with --json."""
        return json.loads(self.stdout)


@dataclass
class Client:
    """A user with a home folder and a configuration for one service, who works in `working_folder` (default: home)."""

    home: Path
    environment: dict[str, str] = field(default_factory=dict)
    working_folder: Path | None = None

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            **self.environment,
        }

    @property
    def folder(self) -> Path:
        return Path(self.environment.get("LLMGATEWAY_CONFIG_DIR", self.home / ".llmgateway"))

    @property
    def config(self) -> dict[str, str]:
        """The members of the configuration file."""
        path = self.folder / "config.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def configure(self, **members: str) -> None:
        """Set members of the configuration file, as another client would."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.folder / "config.json").write_text(json.dumps(self.config | members))

    def run(self, *arguments: str, typed: str = "", code: int | None = 0, **environment: str) -> Finished:
        """Run a command without a terminal; `typed` is its standard input. `code` None accepts every exit code."""
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            given.write(typed.encode())
            given.seek(0)
            process = _Process(
                list(arguments),
                self.environment | environment,
                self.working_folder or self.home,
                [f.fileno() for f in (given, output, errors)],
            )
            ended = process.wait(PATIENCE_S)
            texts = []
            for file in (output, errors):
                file.seek(0)
                texts.append(file.read().decode())
        finished = Finished(ended, *texts)
        assert code is None or finished.code == code, finished
        return finished

    def document(self, *arguments: str, **environment: str) -> Any:
        """Return the decoded output of a command with --json."""
        return self.run(*arguments, "--json", **environment).document

    def refused(self, *arguments: str, code: int = 1, typed: str = "", **environment: str) -> str:
        """Run a command that must fail without data, and return its message."""
        finished = self.run(*arguments, code=code, typed=typed, **environment)
        assert finished.stdout == "", finished
        return finished.stderr

    def terminal(self, *arguments: str, columns: int = 80, **environment: str) -> "Terminal":
        """Start a command on a pseudo-terminal."""
        return Terminal(self, list(arguments), columns, self.environment | environment)


def working_in(client: Client, folder: Path) -> Client:
    """Return the same user, who works in a folder."""
    return Client(client.home, client.environment, folder)


class Terminal:
    """A command on a pseudo-terminal. Output contains colours and progress; `text` is without them."""

    timeout_s = PATIENCE_S

    def __init__(self, client: Client, arguments: list[str], columns: int, environment: dict[str, str]) -> None:
        self.columns = columns
        self.output = ""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        try:
            self._process = _Process(
                arguments, environment, client.working_folder or client.home, [slave, slave, slave]
            )
        finally:
            os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        os.close(self._master)

    @property
    def text(self) -> str:
        """The output without escape sequences and carriage returns."""
        return ESCAPE.sub("", self.output)

    def expect(self, text: str) -> str:
        """Wait until the output contains a text, and return the output."""
        until = time.monotonic() + self.timeout_s
        while text not in self.text:
            assert self._read(until), f"{text!r} is not in {self.text!r}"
        return self.text

    def type(self, line: str) -> None:
        """Type a line and Enter."""
        os.write(self._master, line.encode() + b"\r")

    def answer(self, prompt: str, line: str) -> None:
        """Wait for a prompt and type a line."""
        self.expect(prompt)
        self.wait_for_silence()
        self.type(line)

    def wait_for_silence(self) -> None:
        """Wait until the program reads: it turns echo off for a secret after it has printed the prompt."""
        while select.select([self._master], [], [], 0.05)[0]:
            if not self._read(time.monotonic() + self.timeout_s):
                return

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self._master, b"\x03")

    def end(self, code: int = 0) -> str:
        """Wait until the command ends with this exit code, and return its text."""
        until = time.monotonic() + self.timeout_s
        while self._read(until):
            pass
        ended = self._process.wait(self.timeout_s)
        os.close(self._master)
        self._master = os.open(os.devnull, os.O_RDWR)
        assert ended == code, (ended, self.text)
        return self.text

    def _read(self, until: float) -> bool:
        """Read more output; False at its end. AssertionError after the time."""
        left = until - time.monotonic()
        ready = left > 0 and select.select([self._master], [], [], left)[0]
        assert ready, f"no more output: {self.text!r}"
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other end is closed
            return False
        self.output += data.decode(errors="replace")
        return bool(data)


class _Process:
    """A run of the client, forked from the process that has imported its modules."""

    def __init__(self, arguments: list[str], environment: dict[str, str], folder: Path, streams: list[int]) -> None:
        self._line, theirs = socket.socketpair()
        given = {"arguments": arguments, "environment": environment, "folder": str(folder)}
        with theirs:
            _source().send(given, [*streams, theirs.fileno()])
        self._received = b""
        self._code: int | None = None
        self._line.settimeout(PATIENCE_S)
        self.pid = self._number()

    def wait(self, timeout_s: float) -> int:
        if self._code is None:
            self._line.settimeout(timeout_s)
            try:
                self._code = self._number()
            finally:
                if self._code is None:
                    os.kill(self.pid, signal.SIGKILL)
            self._line.close()
        return self._code

    def kill(self) -> None:
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait(PATIENCE_S)

    def _number(self) -> int:
        while b"\n" not in self._received:
            more = self._line.recv(100)
            assert more, "the run was lost"
            self._received += more
        number, _, self._received = self._received.partition(b"\n")
        return int(number)


class _Source:
    """The forking process, and the socket to it."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(SOURCE), str(theirs.fileno())],
                env={"PATH": os.environ["PATH"]},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def send(self, given: dict[str, Any], descriptors: list[int]) -> None:
        socket.send_fds(self._control, [json.dumps(given).encode()], descriptors)

    def close(self) -> None:
        """Let the process end. The end of the run waits for it, like for every process of a test."""
        self._control.close()


@cache
def _source() -> _Source:
    source = _Source()
    atexit.register(source.close)
    return source
