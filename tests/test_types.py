"""Runs mypy on the package in parallel to the other tests."""

import subprocess
import sys

from gateway.configuration.settings import ROOT


def test_mypy_finds_no_mistake() -> None:
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "gateway"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
