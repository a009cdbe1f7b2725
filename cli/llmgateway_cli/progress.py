"""A line on the terminal that shows that the program waits, or how far something is."""

import itertools
import shutil
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

FRAMES = "|/-\\"
DELAY_S = 1.0
STEP_S = 0.15


class Progress:
    """Shows a text and the seconds on a terminal after one second; nothing on a pipe or a dumb terminal."""

    def __init__(self, text: str, stream: TextIO) -> None:
        self._text = text
        self._stream = stream
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._stream.isatty():
            self._thread = threading.Thread(target=self._show, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _show(self) -> None:
        began = time.monotonic()
        if self._ended.wait(DELAY_S):
            return
        # A line of the whole width would move the cursor to the next one.
        width = shutil.get_terminal_size().columns - 1
        for frame in itertools.cycle(FRAMES):
            seconds = int(time.monotonic() - began)
            self._write(f"{frame} {seconds} s  {self._text}"[:width])
            if self._ended.wait(STEP_S):
                break
        self._write(" " * width)
        self._write("")

    def _write(self, text: str) -> None:
        self._stream.write(f"\r{text}")
        self._stream.flush()


class LiveLine:
    """A line that later ones replace on a terminal; on a pipe each different one is a notice of its own (`note`)."""

    def __init__(self, stream: TextIO, note: Callable[[str], None], silent: bool) -> None:
        self._stream = stream
        self._note = note
        self._silent = silent
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._last and self._stream.isatty() and not self._silent:
            self._stream.write("\n")
            self._stream.flush()

    def show(self, text: str) -> None:
        if self._silent or text == self._last:
            return
        if self._stream.isatty():
            width = shutil.get_terminal_size().columns - 1
            shown = text[:width]
            self._stream.write(f"\r{shown}{' ' * max(0, min(len(self._last), width) - len(shown))}")
            self._stream.flush()
        else:
            self._note(text)
        self._last = text
