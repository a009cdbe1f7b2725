"""Runs mypy on the packages in parallel to the other tests."""

import subprocess
import sys
from pathlib import Path

import pytest

from gateway.configuration.settings import ROOT

DURATION_S = 20.0  # without mypy's cache, as in a new clone


@pytest.mark.parametrize(("folder", "package"), [(ROOT, "gateway"), (ROOT / "cli", "llmgateway_cli")])
def test_mypy_finds_no_mistake(folder: Path, package: str) -> None:
    """The client's settings in cli/pyproject.toml are strict."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", package]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
