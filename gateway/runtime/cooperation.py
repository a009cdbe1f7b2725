"""The cooperative standard library: waiting for a lock, a socket or a process lets other greenlets run."""

from gevent import events, monkey


def patch_all() -> None:
    """Replace the blocking parts of the standard library. Comes before all other imports; further calls do nothing.

    Plugins of gevent are not looked for: at each of two dozen events gevent would read the metadata of every installed
    package, 0.12 s of each start of a command, a master or a program.
    """
    events.notify_and_call_entry_points = events.notify
    monkey.patch_all()
