"""Runs of a program of a clone: each is a fork of a process that has imported the program with the clone's Python.

Importing `./manage` takes longer than most of its commands. A fork has the state of a process that was just started,
and the arguments, environment, folder and input that were given; only the search for the program is left out.
"""

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

SOURCE = Path(__file__).with_name("clone_source.py")


class CloneCommands:
    """A program of a clone, `manage` or `llmgateway`, ready to be run many times."""

    def __init__(self, program: str, clone: Path, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [str(clone / ".venv/bin/python"), str(SOURCE), program, str(clone)],
            cwd=clone,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def run(
        self, arguments: Sequence[str], folder: Path, typed: str = "", environment: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """Run the program, and return its exit status and all that it printed."""
        with tempfile.TemporaryDirectory() as place:
            given, printed = Path(place, "typed"), Path(place, "printed")
            given.write_text(typed)
            request = {
                "arguments": list(arguments),
                "folder": str(folder),
                "environment": {**self._environment, **(environment or {})},
                "typed": str(given),
                "printed": str(printed),
            }
            with self._lock:
                status = self._ask(json.dumps(request))
            return status, printed.read_text()

    def _ask(self, request: str) -> int:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{request}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the process that forks has ended with {self._process.wait()}"
        return os.waitstatus_to_exitcode(int(answer))
