"""The crash journal: a worker's append-only file of intents, read by another worker if it dies.

A record is length, CRC-32, kind, request, attempt and payload, copied into a mapped file. From then on the kernel holds
it, and no kill of the process loses it. The owner locks its files, so an unlocked file means that its owner has ended.

Decided against: a `write` for each record. It costs ten times as much, mostly for passing the interpreter lock to a
commit in progress and back.
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
NO_REQUEST = bytes(16)
FRAME = struct.Struct("<II")
FRAME_BYTES = FRAME.size
CLAIM_BYTES = FRAME_BYTES + BODY.size + EPOCH.size
SEGMENT_BYTES = 1 << 20
MAX_PAYLOAD_BYTES = 1 << 20


class Intent(NamedTuple):
    """A recorded intent; `request` is 16 bytes, `payload` the owner's bytes."""

    request: bytes
    attempt: int
    payload: bytes


class Orphan:
    """An intent file of a process that has ended; its lock is held until `discard` or `release`."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle = handle
        self.owner = place_of(path)[0]
        self.epochs: set[int] = set()
        self.intents: dict[tuple[bytes, int], Intent] = {}
        self._read()

    def discard(self) -> None:
        """Delete the file: all of its intents were handled."""
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
    """The intents of a process, in files `<owner>-<number>.log`, each deleted when none of its intents is open."""

    def __init__(self, directory: Path, node: str, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.directory = directory
        self.owner = f"{re.sub(r'[^A-Za-z0-9.]', '_', node)[:64]}-{os.getpid()}-{os.urandom(4).hex()}"
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
        self._write(CLAIM, NO_REQUEST, 0, EPOCH.pack(epoch))

    def begin(self, request: bytes, attempt: int, payload: bytes) -> None:
        """Record an intent, which survives this process once this returns. Unavailable when it cannot be written."""
        self._write(BEGIN, request, attempt, payload)
        self._open[request, attempt] = self._number

    def revise(self, request: bytes, attempt: int, payload: bytes) -> None:
        """Replace the payload of an open intent; when that fails the intent stays as it was."""
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
        """Close an intent after its result became durable elsewhere. Safe to repeat."""
        number = self._open.pop((request, attempt), None)
        # Open intents are counted only for the files before the current one.
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
        """Delete the files, unless an intent is open: then the next worker of this node handles it."""
        if not self._open and self._handle >= 0:
            for number in (*self._old, self._number):
                self._path(number).unlink(missing_ok=True)
        self.leave()

    def leave(self) -> None:
        """Unlock the files without deleting any; the next process handles their open intents."""
        if self._handle >= 0:
            self._retire()
        for handle in self._old.values():
            os.close(handle)
        self._old.clear()

    def _path(self, number: int) -> Path:
        return self.directory / f"{self.owner}-{number}.log"

    def _rotate(self, needed: int) -> None:
        """Continue in a new file with room for at least `needed` bytes. Unavailable: the current file stays."""
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
            self._write(CLAIM, NO_REQUEST, 0, EPOCH.pack(epoch))
        for number in [number for number in self._old if not self._counts[number]]:
            self._drop(number)

    def _retire(self) -> None:
        """Stop writing to the current file; its contents stay."""
        self._map.close()
        os.ftruncate(self._handle, self._size)
        self._old[self._number] = self._handle
        self._handle = -1
        self._room = 0

    def _make(self, number: int, room: int) -> tuple[int, mmap.mmap]:
        """Create a mapped file, locked before it has its name, so that no process takes it for an orphan.

        Its blocks are allocated here: a full disk raises an error here, whereas a later write to the map would end the
        process by SIGBUS.
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
    """Yield the files of ended processes, one locked at a time, and the newest of an owner first: the last record
    of a revised intent counts."""
    for path in sorted(directory.glob("*.log"), key=place_of, reverse=True):
        handle = lock_orphan(path)
        if handle < 0:
            continue
        orphan = Orphan(path, handle)
        try:
            yield orphan
        finally:
            orphan.release()


def place_of(path: Path) -> tuple[str, int]:
    """Return the owner of a file and the file's number."""
    owner, _, number = path.stem.rpartition("-")
    if not (number.isascii() and number.isdigit()):
        return owner, 0
    return owner, int(number)


def lock_orphan(path: Path) -> int:
    """Return a handle that holds the lock of `path`, or -1 when another process holds it."""
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
    """Yield the whole records; a torn or damaged record ends the file, since it is the last one its owner wrote."""
    place = 0
    while place + FRAME.size <= len(data):
        length, check = FRAME.unpack_from(data, place)
        body = data[place + FRAME.size : place + FRAME.size + length]
        if len(body) < length or length < BODY.size or length > MAX_PAYLOAD_BYTES:
            return
        if zlib.crc32(body) != check:
            return
        yield *BODY.unpack_from(body), body[BODY.size :]
        place += FRAME.size + length
