"""Pages and text of PDFs, read in a child process with limits on time and memory."""

import os
import signal
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import IO, NamedTuple

import gevent
from gevent.monkey import get_original

from gateway.clock import Clock
from gateway.runtime.fair_threads import FairThreads, QueueFull
from gateway.runtime.large_files import StoredFile
from gateway.runtime.threads import compute, compute_if, work_owner

PROGRAM = Path(__file__).with_name("pdf_program.py")
LARGE = 1 << 18
MAX_DURATION_S, LOOK_S = 8.0, 0.005  # the time limit for one file, and the polling interval of the child
CONCURRENT_READERS = 2
MAX_WAITING = 64
WAITING_EACH = 16
CACHE_SIZE = 1024  # cached files: a conversation repeats the same document in each turn
PDF = b"%PDF-"
HEAD = 1024


# Native threads wait for child processes; gevent's own functions work only in the thread of the event loop.
sleep = get_original("time", "sleep")
spawn_process, wait_for_process = get_original("os", ("posix_spawn", "waitpid"))


class PdfFacts(NamedTuple):
    """Size of a PDF. `pages` are those of the page tree; no reader finds more than `max_pages`, with at most
    `text_bytes` of text.
    """

    pages: int
    max_pages: int
    text_bytes: int


class PdfReader:
    """Reads PDFs in one child process each, `CONCURRENT_READERS` at a time; organizations take turns."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, PdfFacts | None] = OrderedDict()
        self._threads: dict[int, FairThreads] = {}  # by event loop: a forked child has its own

    def read(self, data: bytes) -> PdfFacts | None:
        """Return the facts of a PDF; None if it cannot be read, exceeds the limits, or too many others wait."""
        key = compute_if(len(data) >= LARGE, _digest, data)
        return self._read(key, lambda: _read(data))

    def read_stored(self, file: StoredFile) -> PdfFacts | None:
        """Return the facts of a PDF in a file, as `read`; its bytes are never in memory together."""
        if not file.on_disk:
            return self.read(file.read(len(file)))
        return self._read(compute(_digest_stored, file), partial(_read_from, file.descriptor))

    def _read(self, key: bytes, work: Callable[[], PdfFacts | None]) -> PdfFacts | None:
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        try:
            facts = self._known[key] = self._pool().run(work_owner(), work)
        except QueueFull:
            return None
        if len(self._known) > CACHE_SIZE:
            self._known.popitem(last=False)
        return facts

    def _pool(self) -> FairThreads:
        hub = gevent.get_hub()
        pool = self._threads.get(id(hub))
        if pool is None:
            pool = self._threads[id(hub)] = FairThreads(CONCURRENT_READERS, 1, MAX_WAITING, WAITING_EACH, hub=hub)
        return pool


def is_pdf(head: bytes) -> bool:
    """Return whether any reader may accept a file with these first bytes as a PDF."""
    return PDF in head[:HEAD]


def _digest(data: bytes) -> bytes:
    return sha256(data).digest()


def _digest_stored(file: StoredFile) -> bytes:
    digest = sha256()
    for piece in file.pieces():
        digest.update(piece)
    return digest.digest()


def _read(data: bytes) -> PdfFacts | None:
    """Return the facts from the child process. Runs in a native thread."""
    try:
        with _unnamed() as given:
            given.write(data)
            return _read_from(given.fileno())
    except OSError:
        return None


def _read_from(given: int) -> PdfFacts | None:
    """Return the facts of an open file, as `_read`."""
    try:
        with _unnamed() as written:
            os.lseek(given, 0, os.SEEK_SET)
            _run(given, written.fileno())
            written.seek(0)
            pages, max_pages, text_bytes = map(int, written.read(128).split())
    except (OSError, ValueError):
        return None
    return PdfFacts(pages, max_pages, text_bytes)


def _unnamed() -> IO[bytes]:
    """Create an unnamed file: in memory if the system supports it."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("document", os.MFD_CLOEXEC), "w+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


def _run(given: int, written: int) -> None:
    """Run the program on a file and wait for its end, at most MAX_DURATION_S.

    Its environment is empty so that an exploit of the reader finds no secrets there.
    """
    arguments = [sys.executable, "-I", str(PROGRAM)]
    actions = [
        (os.POSIX_SPAWN_DUP2, given, 0),
        (os.POSIX_SPAWN_DUP2, written, 1),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    pid = spawn_process(sys.executable, arguments, {}, file_actions=actions)
    end = Clock.monotonic() + MAX_DURATION_S
    while _is_running(pid):
        if Clock.monotonic() >= end:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        sleep(LOOK_S)


def _is_running(pid: int) -> bool:
    try:
        running: bool = wait_for_process(pid, os.WNOHANG)[0] == 0
        return running
    except ChildProcessError:  # the child ended, and the event loop's own handler has reaped it
        return False


READER = PdfReader()
