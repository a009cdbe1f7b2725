"""How many steps work takes: lines of Python, whatever the machine does beside it."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_steps(work: Callable[[], object]) -> int:
    """The lines that `work` runs in this thread. What C does at once is one step, unless it calls back."""
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
    """A text whose comparisons are steps: what searches a list of them shows."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) is True
