"""The crash journal: a worker's append-only file of intents, read by another worker if it dies.

A record is length, CRC-32, kind, request, attempt and payload, copied into a mapped file: from then on it is the
kernel's, and no kill of the process loses it. The owner holds a lock on its files: a free lock means that it is gone.

Decided against: a `write` for each record. It costs ten times as much, most of it giving up the interpreter to a commit
in progress and taking it back.
"""

import fcntl
import mmap
import os
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gateway.errors import Unavailable

BODY = struct.Struct("<B16sH")
EPOCH = struct.Struct("<Q")
BEGIN = 1
VOID = 2
CLAIM = 3
NOBODY = bytes(16)
FRAME = struct.Struct("<II")
FRAME_BYTES = FRAME.size
CLAIM_BYTES = FRAME_BYTES + BODY.size + EPOCH.size
SEGMENT_BYTES = 1 << 20
MOST_PAYLOAD = 1 << 20


class Intent(NamedTuple):
    """`request` is 16 bytes, `payload` what the owner wrote."""

    request: bytes
    attempt: int
    payload: bytes


class Orphan:
    """A file whose owner is gone; its lock is held until `discard` or `release`."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle = handle
        self.epochs: set[int] = set()
        self.intents: dict[tuple[bytes, int], Intent] = {}
        self._read()

    def discard(self) -> None:
        """All of it was taken care of."""
        self.path.unlink(missing_ok=True)
        self.release()

    def release(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _read(self) -> None:
        data = self.path.read_bytes()
        for kind, request, attempt, payload in _records(data):
            if kind == BEGIN:
                self.intents[request, attempt] = Intent(request, attempt, payload)
            elif kind == VOID:
                self.intents.pop((request, attempt), None)
            elif kind == CLAIM:
                self.epochs.add(EPOCH.unpack(payload)[0])


class Intents:
    """One per process. Files are segments `<node>-<process>-<number>.log`, deleted once nothing in them is open."""

    def __init__(self, directory: Path, node: str, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.directory = directory
        self._name = f"{re.sub(r'[^A-Za-z0-9.]', '_', node)[:64]}-{os.getpid()}-{os.urandom(4).hex()}"
        self._segment_bytes = segment_bytes
        self._epochs: list[int] = []
        self._number = 0
        self._handle = -1
        self._size = self._room = 0
        self._map: mmap.mmap  # of the current file
        self._open: dict[tuple[bytes, int], int] = {}
        self._counts: dict[int, int] = {}
        self._old: dict[int, int] = {}
        self._rotate(0)

    def claim(self, epoch: int) -> None:
        """Record that this process acts under `epoch` from now on."""
        self._epochs.append(epoch)
        self._write(CLAIM, NOBODY, 0, EPOCH.pack(epoch))

    def begin(self, request: bytes, attempt: int, payload: bytes) -> None:
        """The intent is out of this process when this returns. Unavailable when it cannot be written."""
        self._write(BEGIN, request, attempt, payload)
        self._open[request, attempt] = self._number

    def revise(self, request: bytes, attempt: int, payload: bytes) -> None:
        """Replace the payload of an open intent. What cannot be written leaves the intent as it was."""
        before = self._open.get((request, attempt))
        if before is None:
            return
        try:
            self._write(BEGIN, request, attempt, payload)
        except Unavailable:
            return
        self.end(request, attempt)
        self._open[request, attempt] = self._number

    def end(self, request: bytes, attempt: int) -> None:
        """What became of it is durable elsewhere. Safe to repeat."""
        number = self._open.pop((request, attempt), None)
        # Only of the files before the current one is it counted what is still open.
        if number != self._number and number is not None:
            self._counts[number] -= 1
            if not self._counts[number]:
                self._drop(number)

    def void(self, request: bytes, attempt: int) -> None:
        """Cancel an intent: it was not carried out."""
        if (request, attempt) in self._open:
            self._write(VOID, request, attempt, b"")
            self.end(request, attempt)

    def open_count(self) -> int:
        return len(self._open)

    def close(self) -> None:
        """Delete the files unless something in them is open: then the next worker of this node takes care of it."""
        if not self._open:
            for number in (*self._old, self._number) if self._handle >= 0 else ():
                self._path(number).unlink(missing_ok=True)
        self.leave()

    def leave(self) -> None:
        """Unlock the files without deleting any: whoever comes next takes care of what this process held."""
        if self._handle >= 0:
            self._retire()
        for handle in self._old.values():
            os.close(handle)
        self._old.clear()

    def _path(self, number: int) -> Path:
        return self.directory / f"{self._name}-{number}.log"

    def _rotate(self, needed: int) -> None:
        """Go on in a new file with room for `needed` bytes at least. Unavailable: the old one stays the current one."""
        room = max(self._segment_bytes, needed + len(self._epochs) * CLAIM_BYTES)
        handle, mapped = self._make(self._number + 1, room)
        if self._handle >= 0:
            self._counts[self._number] = sum(number == self._number for number in self._open.values())
            self._retire()
        self._number += 1
        self._handle = handle
        self._map = mapped
        self._room = room
        self._size = 0
        for epoch in self._epochs:
            self._write(CLAIM, NOBODY, 0, EPOCH.pack(epoch))
        for number in [number for number in self._old if not self._counts[number]]:
            self._drop(number)

    def _retire(self) -> None:
        """Write no more to the current file; what it holds stays as it is."""
        self._map.close()
        os.ftruncate(self._handle, self._size)
        self._old[self._number] = self._handle
        self._handle = -1
        self._room = 0

    def _make(self, number: int, room: int) -> tuple[int, mmap.mmap]:
        """A new file, mapped; locked before it has its name, so that nobody takes it for an orphan.

        Its blocks are there from the start: a disk that is full says so here and never at a copy into the map, where
        it would be a signal that kills.
        """
        path = self._path(number)
        hidden = path.with_suffix(".new")
        handle = -1
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.posix_fallocate(handle, 0, room)
            mapped = mmap.mmap(handle, room)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(hidden, path)
        except OSError as error:
            if handle >= 0:
                os.close(handle)
                hidden.unlink(missing_ok=True)
            raise Unavailable(f"Cannot write to {self.directory}: {error.strerror}.") from None
        return handle, mapped

    def _drop(self, number: int) -> None:
        self._path(number).unlink(missing_ok=True)
        os.close(self._old.pop(number))
        del self._counts[number]

    def _write(self, kind: int, request: bytes, attempt: int, payload: bytes) -> None:
        body = BODY.pack(kind, request, attempt) + payload
        length = len(body)
        record = FRAME.pack(length, zlib.crc32(body)) + body
        length += FRAME_BYTES
        if self._size + length > self._room:
            self._rotate(length)
        end = self._size + length
        self._map[self._size : end] = record
        self._size = end


def orphans(directory: Path) -> Iterator[Orphan]:
    """The files whose owners are gone, one locked at a time. The last of an owner comes first: an intent that was
    revised counts as it was written last."""
    for path in sorted(directory.glob("*.log"), key=_place, reverse=True):
        handle = _lock(path)
        if handle < 0:
            continue
        orphan = Orphan(path, handle)
        try:
            yield orphan
        finally:
            orphan.release()


def _place(path: Path) -> tuple[str, int]:
    """The owner of a file, and the number of the file."""
    owner, _, number = path.stem.rpartition("-")
    return owner, int(number) if number.isdecimal() else 0


def _lock(path: Path) -> int:
    """A handle that holds the lock of `path`; -1 when its owner lives or somebody else was faster."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
            return handle
    except OSError:
        pass
    os.close(handle)
    return -1


def _records(data: bytes) -> Iterator[tuple[int, bytes, int, bytes]]:
    """Whole records; a torn or damaged one ends the file, since it was the last thing its owner did."""
    place = 0
    while place + FRAME.size <= len(data):
        length, check = FRAME.unpack_from(data, place)
        body = data[place + FRAME.size : place + FRAME.size + length]
        if len(body) < length or length < BODY.size or length > MOST_PAYLOAD:
            return
        if zlib.crc32(body) != check:
            return
        yield *BODY.unpack_from(body), body[BODY.size :]
        place += FRAME.size + length
