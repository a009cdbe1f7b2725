"""The end of a process: at once, when its work is done."""

import atexit
import os
import sys
from collections.abc import Callable
from typing import NoReturn

UNWRITTEN = 120  # the status with which Python ends when nobody reads what was printed last


def end_with(program: Callable[[], int | None]) -> NoReturn:
    """Run `program` and end this process as `sys.exit(program())` does, in every process that it forks too, but for
    one thing: all of the interpreter's memory is left to the system. To free it object by object is a sixth of what a
    short command costs."""
    try:
        sys.exit(program())
    except SystemExit as end:
        status = _status_of(end.code)
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        status = UNWRITTEN
    os._exit(status)


def _status_of(code: object) -> int:
    """The exit status of what sys.exit was given; what is no number is told as the last line."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)
    return 1
