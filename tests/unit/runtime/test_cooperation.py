"""Patching the standard library: complete, and without a search for plugins."""

import subprocess
import sys

PROGRAM = """
import sys
from gateway.runtime.cooperation import patch_all
patch_all()
from gevent import monkey
print(*(monkey.is_module_patched(name) for name in ("socket", "threading", "subprocess", "time")))
print("importlib.metadata" in sys.modules)
"""


def test_waiting_is_cooperative_and_no_metadata_of_packages_is_read() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "True", "True", "False"]
