"""Fork hooks of libraries that must not run in the gateway."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


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
