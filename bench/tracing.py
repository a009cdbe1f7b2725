"""Within a worker: the bytecodes of one request as a tree of calls, or the modules that it enters."""

import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import greenlet

from gateway.server.connection import CallerConnection
from gateway.server.request_heads import HeadCache, RequestHead

# By then memories are filled and the interpreter has specialised what runs often.
WARM_REQUESTS = 2_000
MIN_BYTECODES = 8
IN_A_ROW = 16  # requests that came one by one, before one of them is traced


class Step:
    """A function at one place of the tree: its own bytecodes, how often it was called, what it called."""

    __slots__ = ("below", "calls", "name", "own")

    def __init__(self, name: str) -> None:
        self.name, self.own, self.calls = name, 0, 0
        self.below: dict[CodeType, Step] = {}

    @property
    def all(self) -> int:
        return self.own + sum(step.all for step in self.below.values())

    def write(self, depth: int = 0) -> str:
        """Lines of "all (own) xcalls name", the dearest first, without what is small."""
        lines = [f"{'  ' * depth}{self.all:6d} ({self.own}) x{self.calls} {self.name}\n"]
        below = sorted(self.below.values(), key=lambda step: -step.all)
        return "".join(lines + [step.write(depth + 1) for step in below if step.all >= MIN_BYTECODES])


class Tracer:
    """Counts in the greenlet that made it, from `begin` to `end`; others that run meanwhile are left out."""

    def __init__(self) -> None:
        self.root = Step("request")
        self._greenlet = greenlet.getcurrent()
        self._stack: list[tuple[FrameType, Step]] = []

    def begin(self) -> None:
        sys.settrace(self._enter)

    def end(self) -> Step:
        sys.settrace(None)
        return self.root

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        if greenlet.getcurrent() is not self._greenlet:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        while self._stack and self._stack[-1][0] is not frame.f_back:
            self._stack.pop()
        above = self._stack[-1][1] if self._stack else self.root
        step = above.below.get(frame.f_code)
        if step is None:
            step = above.below[frame.f_code] = Step(name_of(frame.f_code))
        step.calls += 1
        self._stack.append((frame, step))

        def count(frame: FrameType, event: str, argument: Any) -> Any:
            step.own += event == "opcode"
            return count

        return count


class ModuleCounter:
    """Counts the calls of each module of the gateway in the greenlet that made it, from `begin` to `end`."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._greenlet = greenlet.getcurrent()

    def begin(self) -> None:
        sys.setprofile(self._enter)

    def end(self) -> "ModuleCounter":
        sys.setprofile(None)
        return self

    def write(self) -> str:
        """Return the number of modules, then lines of calls and module, the fewest calls first."""
        rows = sorted(self.calls.items(), key=lambda row: (row[1], row[0]))
        return f"{len(rows)} modules\n" + "".join(f"{calls:6d} {module}\n" for module, calls in rows)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and greenlet.getcurrent() is self._greenlet:
            module = frame.f_globals.get("__name__", "")
            if module.startswith("gateway."):
                self.calls[module] += 1


def name_of(code: CodeType) -> str:
    """Where it stands, from the last folder on, and what it is called."""
    path = Path(code.co_filename)
    return f"{path.parent.name}/{path.name}:{code.co_firstlineno} {code.co_qualname}"


class Sparse:
    """Whether requests have come at least `apart_s` seconds apart for a while; at once when that is 0."""

    def __init__(self, apart_s: float) -> None:
        self._apart_s, self._at, self._in_a_row = apart_s, 0.0, 0

    def note(self) -> bool:
        """One more came."""
        before, self._at = self._at, time.monotonic()
        self._in_a_row = self._in_a_row + 1 if self._at - before >= self._apart_s else 0
        return not self._apart_s or self._in_a_row >= IN_A_ROW


def install(
    target: Path,
    apart_s: float = 0.0,
    make_tracer: Callable[[], Tracer | ModuleCounter] = Tracer,
    warm_requests: int = WARM_REQUESTS,
) -> None:
    """Trace the first request of a connection that comes after the warm ones: from its head to the next one's. With
    `apart_s` one of those that come so many seconds apart."""
    take, seen, sparse = HeadCache.take, 0, Sparse(apart_s)
    tracers: dict[CallerConnection, Tracer | ModuleCounter] = {}

    def traced(heads: HeadCache, connection: CallerConnection) -> tuple[RequestHead, int] | None:
        nonlocal seen
        seen += 1
        tracer = tracers.get(connection)
        if tracer is not None:
            target.write_text(tracer.end().write())
            HeadCache.take = take
        elif seen > warm_requests and not tracers and sparse.note() and connection.head is not None:
            tracers[connection] = make_tracer()
            tracers[connection].begin()
        return take(heads, connection)

    HeadCache.take = traced
