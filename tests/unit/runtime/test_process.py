"""Patching the standard library: complete, and without a search for plugins."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import sys
from gateway.runtime.process import patch_all
patch_all()
from gevent import monkey
print(*(monkey.is_module_patched(name) for name in ("socket", "threading", "subprocess", "time")))
print("importlib.metadata" in sys.modules)
"""


def test_waiting_is_cooperative_and_no_metadata_of_packages_is_read() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "True", "True", "False"]


# A process exits as with sys.exit, but without freeing its memory.

ROOT = Path(__file__).resolve().parents[3]
BEGIN = """
import atexit, os, sys
from gateway.runtime.process import end_with
class Kept:
    def __del__(self): os.write(1, b"freed ")
kept = Kept()
atexit.register(print, "last", end="")
print("said ", end="")
"""


def run(command: str) -> Any:
    """Python with buffered output, as by default."""
    return subprocess.run([sys.executable, "-c", command], cwd=ROOT, env={}, capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize(
    ("program", "status", "told"),
    [
        ("lambda: None", 0, ""),
        ("lambda: 3", 3, ""),
        ("lambda: sys.exit('error: it is wrong')", 1, "error: it is wrong\n"),
        ("lambda: sys.exit(0) if os.fork() == 0 else os.waitstatus_to_exitcode(os.wait()[1]) or 4", 4, ""),
    ],
)
def test_it_ends_with_its_status_and_all_that_was_said_but_frees_nothing(program, status, told):
    done = run(f"{BEGIN}end_with({program})")
    assert (done.returncode, done.stderr) == (status, told)
    # A forked process exits in the same way, with the output inherited from its parent.
    assert done.stdout == "said last" * (2 if "fork" in program else 1)


def test_unwritten_output_is_reported_by_the_exit_status():
    done = run(f"import os\nos.close(1)\nos.open('/dev/full', os.O_WRONLY){BEGIN}end_with(lambda: 0)")
    assert (done.returncode, done.stderr) == (120, "")


def test_an_uncaught_exception_is_printed_as_usual():
    done = run(f"{BEGIN}end_with(lambda: 1 / 0)")
    assert done.returncode == 1 and "ZeroDivisionError" in done.stderr and "freed" in done.stdout
