"""Removals of old usage that do not rest between their steps: a test is alone with its store.

The product rests for most of the time, so that others hardly ever find the writer held.
"""

from gateway.metering.rollups import purge


def make_cheap() -> None:
    """From now on in this process."""
    purge.SHARE = 1.0
