"""The operator's commands in this process, on a store and a folder of one test's own."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.operator import command

SECRETS = {
    "GATEWAY_API_KEY_HASH_SECRET": "hash-secret-of-the-tests",
    "GATEWAY_ENCRYPTION_KEY": "encryption-key-of-the-tests",
}
Run = Callable[..., str]


def command_runner(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    folder: Path,
    *,
    notes: bool = False,
    **environment: str,
) -> Run:
    """run(*arguments, status=0, typed=""): what a command printed, its result or why it failed; its status must be as
    given, `typed` is its standard input. `notes`: also what it said beside its result."""
    for name, value in {"GATEWAY_DATA_DIR": str(folder / "data"), "GATEWAY_ENV": "test", **environment}.items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str, status: int = 0, typed: str = "") -> str:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        assert command.run(list(arguments)) == status
        shown = capsys.readouterr()
        return (shown.out + shown.err if notes else shown.err if status else shown.out).strip()

    return run
