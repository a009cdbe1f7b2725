"""Finds programs for tests that are not Python packages: on PATH, or where `make test` installs them."""

import os
import shutil
import sys
from pathlib import Path

import pytest

# The folder of this interpreter (see .venv/tools.stamp in the Makefile), then Debian's folder for administrators.
PLACES = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin"])


def find_program(name: str, package: str) -> str:
    """Return the path of a program. Skips where neither it nor Debian's `package` is available."""
    found = shutil.which(name, path=PLACES)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: apt-get install {package})")
    return found
