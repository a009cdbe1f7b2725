"""Removals of old usage without pauses between their steps: a test is the only user of its store.

The product pauses for most of the time, so that other writers rarely wait for the lock.
"""

from gateway.metering.rollups import purge


def make_cheap() -> None:
    """Remove the pauses in this process."""
    purge.MAX_LOAD = 1.0
