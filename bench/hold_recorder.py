"""Within a worker: the CPU time of its event loop between two switches of greenlets, and the place of long ones."""

import sys
import threading
import time
from pathlib import Path
from types import FrameType

import greenlet
import orjson
from gevent.monkey import get_original

# A hold of this CPU time is recorded; a thread looks for its place as often.
RECORDED_S = 0.005
LOOK_S = 0.002
DEEPEST = 30


def record(target: Path) -> None:
    """Write each hold of at least RECORDED_S to `target`, a JSON object a line: `ms` of CPU and `place`."""
    loop = threading.get_native_id()
    thread = get_original("_thread", "get_ident")()
    last = time.thread_time()
    place = ""
    sink = target.open("ab", buffering=0)

    def note(event: str, args: tuple[object, object]) -> None:
        nonlocal last, place
        now = time.thread_time()
        if now - last >= RECORDED_S:
            sink.write(orjson.dumps({"ms": round((now - last) * 1000, 1), "place": place}) + b"\n")
        place = ""
        last = time.thread_time()

    def look() -> None:
        nonlocal place
        sleep = get_original("time", "sleep")
        while True:
            sleep(LOOK_S)
            before = last
            frame = sys._current_frames().get(thread)
            found = place_of(frame)
            del frame
            if last == before:
                place = found

    assert loop == get_original("threading", "get_native_id")()
    greenlet.settrace(note)
    get_original("_thread", "start_new_thread")(look, ())


def place_of(frame: FrameType | None) -> str:
    """Return the innermost function of the gateway in the stack of `frame`, and the function that it runs in."""
    names = []
    for _ in range(DEEPEST):
        if frame is None:
            break
        path = Path(frame.f_code.co_filename)
        if "gateway" in path.parts or not names:
            names.append(f"{path.parent.name}/{path.name}:{frame.f_lineno} {frame.f_code.co_qualname}")
        frame = frame.f_back
    return " < ".join(names[:4])
