"""Programs that are no Python packages and that some tests drive: found on PATH, or where `make test` puts them."""

import os
import shutil
import sys
from pathlib import Path

import pytest

# Beside this interpreter (see .venv/tools.stamp in the Makefile), then where Debian has what is for administrators.
PLACES = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin"])


def find_program(name: str, package: str) -> str:
    """The path of a program; skips where it is neither installed nor to be had from Debian's `package`."""
    found = shutil.which(name, path=PLACES)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: apt-get install {package})")
    return found
