"""Pages and text of PDFs, read in a child process with limits on time and memory."""

import os
import signal
import sys
import tempfile
from collections import OrderedDict
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, NamedTuple

from gevent.monkey import get_original

from gateway.clock import Clock
from gateway.media.turns import FairTurns
from gateway.threads import compute_if, pause

PROGRAM = Path(__file__).with_name("pdf_program.py")
LARGE = 1 << 18
LONGEST_S, LOOK_S = 8.0, 0.005  # the most time for one file; how often the child is looked at
AT_ONCE, PATIENCE_S = 2, 20.0
REMEMBERED = 1024  # files: a conversation brings the same document with each of its turns
PDF, HEAD = b"%PDF-", 1024  # readers accept other bytes before the header


class PdfFacts(NamedTuple):
    """`pages` are those of the page tree; no reader finds more than `most_pages`, with at most `text_bytes` of text."""

    pages: int
    most_pages: int
    text_bytes: int


class PdfReader:
    """Reads PDFs one per child process, `AT_ONCE` of them at a time."""

    def __init__(self) -> None:
        self._turns = FairTurns(AT_ONCE)
        self._known: OrderedDict[bytes, PdfFacts | None] = OrderedDict()

    def read(self, data: bytes, owner: str) -> PdfFacts | None:
        """The facts of a PDF; None for what cannot be read, also within the limits or while too many others wait.
        `owner` is the organization, whose files take turns with those of others."""
        key = compute_if(len(data) >= LARGE, _digest, data)
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        with self._turns.turn(owner, PATIENCE_S) as taken:
            if not taken:
                return None
            found = self._known[key] = _read(data)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return found


def is_pdf(head: bytes) -> bool:
    """Whether any reader may take what begins so for a PDF."""
    return PDF in head[:HEAD]


def _digest(data: bytes) -> bytes:
    return sha256(data).digest()


def _read(data: bytes) -> PdfFacts | None:
    try:
        with _unnamed() as given, _unnamed() as written:
            compute_if(len(data) >= LARGE, given.write, data)
            given.seek(0)
            _run(given.fileno(), written.fileno())
            written.seek(0)
            pages, most_pages, text_bytes = map(int, written.read(128).split())
    except (OSError, ValueError):
        return None
    return PdfFacts(pages, most_pages, text_bytes)


def _unnamed() -> IO[bytes]:
    """A file without a name: in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("document", os.MFD_CLOEXEC), "w+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


def _run(given: int, written: int) -> None:
    """Run the program on a file and wait for its end, at most LONGEST_S. Its environment is empty: what an exploit of
    the reader could look at first is not there."""
    arguments = [sys.executable, "-I", str(PROGRAM)]
    actions = [
        (os.POSIX_SPAWN_DUP2, given, 0),
        (os.POSIX_SPAWN_DUP2, written, 1),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    pid = os.posix_spawn(sys.executable, arguments, {}, file_actions=actions)
    end = Clock.monotonic() + LONGEST_S
    try:
        while _is_running(pid) and Clock.monotonic() < end:
            pause(LOOK_S)
    finally:
        if _is_running(pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            while _is_running(pid):
                pause(LOOK_S)


def _is_running(pid: int) -> bool:
    try:
        return get_original("os", "waitpid")(pid, os.WNOHANG)[0] == 0
    except ChildProcessError:  # it ended, and the event loop's own handler has seen it
        return False


READER = PdfReader()
