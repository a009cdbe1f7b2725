"""Turns off fsync. No test cuts the power, and the kernel keeps the writes of a killed process.

`tests/unit/store/test_database.py` checks the product's settings.
"""

from gateway.store import sqlite

REAL = sqlite.PRAGMAS


def make_cheap() -> None:
    """Turn off fsync in this process."""
    sqlite.PRAGMAS = tuple((name, "off" if name == "synchronous" else value) for name, value in REAL)
