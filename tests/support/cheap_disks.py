"""Disks that nobody waits for: no test cuts the power, and what a killed process has written the kernel has.

`tests/unit/store/test_database.py` looks at what the product asks for.
"""

from gateway.store import sqlite

REAL = sqlite.PRAGMAS


def make_cheap() -> None:
    """From now on in this process."""
    sqlite.PRAGMAS = tuple((name, "off" if name == "synchronous" else value) for name, value in REAL)
