"""The tests that a process of pytest was handed and has not run yet.

They are handed over by a real thread, while this process runs on an event loop: now and then the loop missed that
something had come, and the process idled to the end of the run beside the others.
"""

from typing import Any

import gevent
import pytest
from gevent.monkey import get_original

LOOK_S = 0.01


class Looked:
    """An event that nobody need tell anything: who waits looks again after a moment."""

    def set(self) -> None:
        """Nobody sleeps for longer than a moment."""

    def clear(self) -> None:
        """As `set`."""

    def wait(self) -> None:
        gevent.sleep(LOOK_S)


def look_for_them(config: pytest.Config) -> None:
    """Let this process look for the tests that it is handed; nothing happens where it is handed none."""
    for plugin in config.pluginmanager.get_plugins():
        queue: Any = getattr(plugin, "torun", None)
        if queue is not None:
            queue._lock = get_original("_thread", "RLock")()
            queue._has_items_event = Looked()
