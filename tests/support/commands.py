"""Runs operator commands in this process, on a store and a folder of one test."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import prepared
from support.prepared import ENVIRONMENT
from support.prepared import SECRETS as SECRETS

from gateway.operator import command

Run = Callable[..., str]


def command_runner(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    folder: Path,
    *,
    notes: bool = False,
    **environment: str,
) -> Run:
    """Return run(*arguments, status=0, typed=""), which returns the output of a command. The command must exit with
    `status`; `typed` is its standard input. `notes`: also return the notes beside its result."""
    prepared.keep_catalogue()  # in a run with several processes it is already there
    for name, value in {**ENVIRONMENT, "GATEWAY_DATA_DIR": str(folder / "data"), **environment}.items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str, status: int = 0, typed: str = "") -> str:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        assert command.run(list(arguments)) == status
        shown = capsys.readouterr()
        return (shown.out + shown.err if notes else shown.err if status else shown.out).strip()

    return run
