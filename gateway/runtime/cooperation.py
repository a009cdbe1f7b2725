"""The cooperative standard library: waiting for a lock, a socket or a process lets other greenlets run."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gevent import events, monkey

# Fork hooks of libraries that must not run in the gateway.


@contextmanager
def without_fork_hooks(package: str) -> Iterator[None]:
    """Ignore the fork hooks that modules of `package` register inside the block.

    OpenTelemetry's hooks start a thread in each forked child. With gevent, starting a thread switches to the event
    loop: a child of `subprocess` then runs the greenlets of the gateway instead of its program, or waits forever.
    """
    register = os.register_at_fork

    def register_others(**hooks: Callable[[], Any]) -> None:
        # A bound method of a C type, such as the `acquire` of a lock, has no module.
        modules = [str(getattr(hook, "__module__", "")) for hook in hooks.values()]
        if not any(module.partition(".")[0] == package for module in modules):
            register(**hooks)

    os.register_at_fork = register_others  # type: ignore[assignment]
    try:
        yield
    finally:
        os.register_at_fork = register


def patch_all() -> None:
    """Replace the blocking parts of the standard library. Comes before all other imports; further calls do nothing.

    Plugins of gevent are not looked for: at each of two dozen events gevent would read the metadata of every installed
    package, 0.12 s of each start of a command, a master or a program.
    """
    events.notify_and_call_entry_points = events.notify
    monkey.patch_all()
