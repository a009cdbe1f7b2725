"""Programs on a pseudo-terminal, typed to and read as a person does."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

PATIENCE_S = 600.0
# A program that prompts does it within a minute; a start that installs libraries takes longer.
PROMPT_S = 60.0
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


def _own_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A program with a terminal of its own, which is also /dev/tty."""

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], columns: int = 100
    ) -> None:
        self._output = ""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        self._process = subprocess.Popen(
            list(command),
            cwd=folder,
            env=dict(environment),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=_own_terminal,
        )
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._master)

    @property
    def text(self) -> str:
        """The output without escape sequences and carriage returns."""
        return ESCAPE.sub("", self._output)

    def expect(self, text: str, patience_s: float = PATIENCE_S) -> str:
        """Wait until the output contains a text, and return the output."""
        until = time.monotonic() + patience_s
        while text not in self.text:
            assert self._read(until), f"{text!r} is not in {self.text!r}"
        return self.text

    def answer(self, prompt: str, line: str) -> None:
        """Wait for a prompt and for silence after it (the program then reads), and type a line."""
        self.expect(prompt, PROMPT_S)
        while select.select([self._master], [], [], 0.3)[0] and self._read(time.monotonic() + PATIENCE_S):
            pass
        os.write(self._master, line.encode() + b"\r")

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self._master, b"\x03")

    def end(self) -> tuple[int, str]:
        """Wait for the end of the program, and return its exit code and its text."""
        until = time.monotonic() + PATIENCE_S
        while self._read(until):
            pass
        return self._process.wait(PATIENCE_S), self.text

    def _read(self, until: float) -> bool:
        left = until - time.monotonic()
        ready = left > 0 and select.select([self._master], [], [], left)[0]
        assert ready, f"no more output: {self.text!r}"
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other end is closed
            return False
        self._output += data.decode(errors="replace")
        return bool(data)
