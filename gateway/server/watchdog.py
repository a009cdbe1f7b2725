"""The watchdog of a worker: measures event loop lag, and names the request that caused it.

A timer in the loop sets a heartbeat; a native thread checks whether the heartbeat is late, and then samples the stack
of the loop's thread. Requests carry no instrumentation for it. In a worker without connections heartbeats are rare, as
are all ticks, because 20 wake-ups a second of timer and thread took a fifth of an idle worker's CPU.
"""

import logging
import os
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

import gevent
from gevent import monkey

from gateway.runtime.loop_turns import TICK_S, rest, until_tick

log = logging.getLogger("gateway")

HEARTBEAT_INTERVAL_S = 0.05
RESTING_HEARTBEAT_INTERVAL_S = 2 * TICK_S
# Ticks without a connection after which heartbeats become rare.
QUIET_TICKS = 20
IDLE_CHECK_INTERVAL_S = 1.0
WINDOW_S = 30.0
LOG_INTERVAL_S = 1.0
MAX_PATH_LENGTH = 200  # characters of a path that are shown
MAX_FRAMES = 400
STATM = Path("/proc/self/statm")
PACKAGE = "gateway"
# The original functions: gevent's would wait for the loop that is being watched.
start_thread = monkey.get_original("_thread", "start_new_thread")
thread_id = monkey.get_original("_thread", "get_ident")
allocate_lock = monkey.get_original("_thread", "allocate_lock")

NO_TIME = "nothing in this process: the machine gave it no CPU time"

Gauges = dict[str, tuple[str, float]]


class Watchdog:
    """Watches the loop of the thread that starts it, and logs what blocks the loop for `limit_s` or longer."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = max(limit_s, HEARTBEAT_INTERVAL_S)
        self._at = 0.0
        self._cpu = 0.0
        self._window_at = 0.0
        self._logged_at = -LOG_INTERVAL_S
        self._thread = 0
        self._holder = ""
        self._unlogged = 0
        self._lags = [0.0, 0.0]  # the worst of this window and of the last
        self._busy = [0.0, 0.0]
        self._held = 0
        self._held_s = 0.0
        self._running = False
        self._timer: Any = None
        self._every_s = HEARTBEAT_INTERVAL_S
        self._quiet = 0
        self._wake = allocate_lock()  # held, except to end a wait of the native thread
        self._wake.acquire()

    def start(self) -> None:
        """Start watching."""
        self._thread = thread_id()
        self._running = True
        self._at = self._window_at = time.perf_counter()
        self._cpu = time.thread_time()
        self._restart_timer(HEARTBEAT_INTERVAL_S, HEARTBEAT_INTERVAL_S)
        start_thread(self._look, ())

    def stop(self) -> None:
        self._running = False
        self._stop_timer()
        rest(False)

    def tick(self, connections: int) -> None:
        """Let a worker rest that had no connections for some seconds: its heartbeats and other ticks become rare.

        Called at each tick."""
        if connections:
            self._quiet = 0
            return
        self._quiet += 1
        if self._quiet == QUIET_TICKS:
            rest(True)
            self._restart_timer(until_tick(resting_s=RESTING_HEARTBEAT_INTERVAL_S), RESTING_HEARTBEAT_INTERVAL_S)

    def speed_up(self) -> None:
        """Make heartbeats frequent at once, and other ticks after the next. Called for each new connection."""
        self._quiet = 0
        if self._every_s != HEARTBEAT_INTERVAL_S:
            rest(False)
            self._restart_timer(HEARTBEAT_INTERVAL_S, HEARTBEAT_INTERVAL_S)
            if self._wake.locked():
                self._wake.release()

    def _restart_timer(self, first_s: float, every_s: float) -> None:
        self._stop_timer()
        self._every_s = every_s
        self._at = time.perf_counter() + first_s - every_s
        self._timer = gevent.get_hub().loop.timer(first_s, every_s, ref=False)
        self._timer.start(self._beat)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None

    def gauges(self) -> Gauges:
        """Return the current gauges: name → (help text, value)."""
        return {
            "loop_lag_seconds": ("Longest wait for the event loop in the last 30 to 60 seconds.", max(self._lags)),
            "loop_busy_seconds": ("Most CPU time of one event loop turn in that time.", max(self._busy)),
            "loop_held": (f"Turns of the event loop of {self._limit_s:g} s or more since the start.", self._held),
            "loop_held_seconds": ("Time in such turns.", self._held_s),
            "resident_bytes": ("Memory of this worker.", read_resident()),
        }

    def _beat(self) -> None:
        now = time.perf_counter()
        cpu = time.thread_time()
        took = now - self._at
        busy = cpu - self._cpu
        self._at = now
        self._cpu = cpu
        if now - self._window_at > WINDOW_S:
            self._window_at = now
            self._lags = [0.0, self._lags[0]]
            self._busy = [0.0, self._busy[0]]
        lag = max(0.0, took - self._every_s)
        self._lags[0] = max(self._lags[0], lag)
        self._busy[0] = max(self._busy[0], busy)
        holder = self._holder
        self._holder = ""
        if lag >= self._limit_s:
            self._held += 1
            self._held_s += lag
            self._log_hold(now, lag, busy, holder)

    def _log_hold(self, now: float, lag: float, busy: float, holder: str) -> None:
        if now - self._logged_at < LOG_INTERVAL_S:
            self._unlogged += 1
            return
        self._logged_at = now
        unlogged = self._unlogged
        self._unlogged = 0
        more = f"; {unlogged} more since the last line" if unlogged else ""
        if not holder:
            holder = NO_TIME if busy * 10 < lag else "work that ended before it could be sampled"
        log.warning("the event loop was blocked for %.3f s (%.3f s of CPU) by %s%s", lag, busy, holder, more)

    def _look(self) -> None:
        """Run in the native thread: describe the cause of each late heartbeat once."""
        while self._running:
            self._wake.acquire(
                timeout=HEARTBEAT_INTERVAL_S if self._every_s == HEARTBEAT_INTERVAL_S else IDLE_CHECK_INTERVAL_S
            )
            late_s = time.perf_counter() - self._at - self._every_s
            if not self._holder and late_s >= self._limit_s - HEARTBEAT_INTERVAL_S:
                frame = sys._current_frames().get(self._thread)
                self._holder = describe(frame) if frame is not None else ""
                del frame


def describe(frame: FrameType | None) -> str:
    """Return the request of `frame`, from local variables of the frames above it (method, path and ids), and the place
    in the code. Nothing of a request's headers, query or body."""
    place = ""
    method = ""
    path = ""
    request = ""
    key = ""
    for _ in range(MAX_FRAMES):
        if frame is None:
            break
        code = frame.f_code
        if not place and f"{os.sep}{PACKAGE}{os.sep}" in code.co_filename:
            place = f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}"
        if "inbound" in code.co_varnames or "head" in code.co_varnames or "context" in code.co_varnames:
            variables = frame.f_locals
            for source in (variables.get("inbound"), variables.get("head")):
                method = method or getattr(source, "method", "")
                path = path or getattr(source, "path", "")
                request = request or getattr(source, "request_id", "")
            context = variables.get("context")
            request = request or getattr(context, "request_id", "")
            for caller in (getattr(context, "caller", None), _sender_of(variables.get("head"))):
                key = key or getattr(caller, "key_id", "")
        frame = frame.f_back
    if not path:
        return f"background work at {place or 'an unknown place'}"
        # The caller chooses the path, so line ends in it are escaped.
    shown = path[:MAX_PATH_LENGTH].encode("unicode_escape").decode()
    text = f"{method} {shown}, request {request or 'unknown'}, key {key or 'unknown'}"
    if place:
        return f"{text}, at {place}"
    return text


def _sender_of(head: Any) -> Any:
    return getattr(getattr(head, "sender", None), "caller", None)


def read_resident() -> float:
    """Return the process's resident memory in bytes; 0 where the system does not report it."""
    try:
        return float(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0.0
