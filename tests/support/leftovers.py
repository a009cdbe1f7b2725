"""Ends every process that a test left running: gateways, servers, and whatever they started.

Linux gives a process whose parent has ended to the nearest ancestor that asked for it. Each process that runs tests
asks, so it remains the ancestor of everything that its tests start, daemons included, and finds it at its end.
"""

import ctypes
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

# Linux, include/uapi/linux/prctl.h.
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
END_S = 10.0


def adopt() -> None:
    """Become the parent of each descendant that loses its own."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent() -> None:
    """Be killed when the process that forked this one ends, for whatever reason. Programs call it after a fork."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end_all() -> list[int]:
    """Kill all descendants of this process, wait for their end, and return their ids."""
    ended: list[int] = []
    deadline = time.monotonic() + END_S
    while (running := descendants(os.getpid())) and time.monotonic() < deadline:
        for process in running:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        ended += [process for process in running if process not in ended]
        _reap()
        time.sleep(0.01)
    return ended


def descendants(process: int) -> list[int]:
    """Return the ids of the running processes that descend from `process`."""
    found: list[int] = []
    for child in _children(process):
        if not _is_zombie(child):
            found.append(child)
        found += descendants(child)
    return found


def _children(process: int) -> list[int]:
    children: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            with suppress(OSError):
                children += map(int, (thread / "children").read_text().split())
    return children


def _is_zombie(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue


def _prctl(option: int, value: int) -> None:
    if hasattr(ctypes.CDLL(None), "prctl"):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
