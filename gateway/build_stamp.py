"""The build: version, commit and date of the running program."""

import subprocess
from functools import cache
from pathlib import Path

from gateway import __version__

PACKAGE = Path(__file__).resolve().parent
# Written into a wheel (deploy/build_hook.py): the abbreviated commit, a blank, its date.
STAMP = PACKAGE / "build.txt"
GIT_TIMEOUT_S = 2.0


@cache
def read_stamp() -> tuple[str, str]:
    """Return the abbreviated commit and its date, for example `("3a1b2c4d", "2026-11-29")`.

    They come from the installed package, or from git in a checkout; both are empty where neither is known.
    """
    if STAMP.is_file():
        text = STAMP.read_text(encoding="utf-8")
    elif (PACKAGE.parent / ".git").exists():
        text = read_commit(PACKAGE.parent)
    else:
        text = ""
    commit, _, date = text.strip().partition(" ")
    return commit, date


def read_commit(folder: Path) -> str:
    """Return the commit of a checkout and its date, separated by a blank; "" without git."""
    command = ["git", "log", "-1", "--format=%h %cs", "--abbrev=8"]
    try:
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=GIT_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return ""
    if run.returncode:
        return ""
    return run.stdout.strip()


def full_version() -> str:
    """Return the version with its build as SemVer writes it: `2.0.0+20261129.3a1b2c4d`."""
    commit, date = read_stamp()
    if not commit:
        return __version__
    return f"{__version__}+{date.replace('-', '')}.{commit}"
