"""The start and the end of a process: the cooperative standard library, where waiting for a lock, a socket or a process
lets other greenlets run, and an immediate exit."""

import atexit
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

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


# Immediate exit of a process when its work is done.

UNWRITTEN_OUTPUT = 120  # Python's exit status if the last output could not be written


def end_with(program: Callable[[], int | None]) -> NoReturn:
    """Run `program` and exit like `sys.exit(program())`, also in forked processes, without freeing the interpreter's
    memory.

    Freeing all objects one by one takes a sixth of the time of a short command.
    """
    try:
        sys.exit(program())
    except SystemExit as end:
        status = _status_of(end.code)
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        status = UNWRITTEN_OUTPUT
    os._exit(status)


def _status_of(code: object) -> int:
    """Return the exit status for the argument of sys.exit; anything other than a number is printed to stderr."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)
    return 1
