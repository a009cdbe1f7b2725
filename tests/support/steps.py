"""Counts the steps of work in lines of Python, independent of the machine's load."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_steps(work: Callable[[], object]) -> int:
    """Return the number of lines that `work` runs in this thread. A C function counts as one step, without its
    callbacks."""
    steps = 0

    def look(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps


class Counted(str):
    """A string that counts its comparisons as steps, to detect searches in lists."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) is True
