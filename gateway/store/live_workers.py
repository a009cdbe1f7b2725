"""Which workers of this node have ended: the files of their crash journals (`intents`) are not locked any more."""

import fcntl
import glob
import os
import socket
from hashlib import blake2b
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class LiveWorkers:
    """The workers whose crash journals are in `directory`. `name` is that of this worker, unique among all nodes."""

    def __init__(self, directory: Path, owner: str) -> None:
        self._directory = directory
        self._place = _place_of(directory)
        self.name = f"{self._place}/{owner}"

    def is_dead(self, name: str) -> bool:
        """Return whether a worker has certainly ended; nothing is known about workers of other nodes."""
        place, _, owner = name.partition("/")
        if not place or place != self._place or not owner or name == self.name:
            return False
        # Where this worker does not look alive either, the folder or its locks show nothing.
        return not self._is_alive(owner) and self._is_alive(self.name.partition("/")[2])

    def _is_alive(self, owner: str) -> bool:
        """Return whether a worker may be alive: it locks all of its files, and has one at any time. The files of others
        are deleted at last."""
        # A file may be followed by another one while the folder is read.
        return any(self._has_locked(owner) for _ in range(2))

    def _has_locked(self, owner: str) -> bool:
        return any(_may_be_locked(path) for path in self._directory.glob(f"{glob.escape(owner)}-*.log"))


def _place_of(directory: Path) -> str:
    """Return an id of a folder on this machine since it started, "" where that is unknown. A copy of the folder, there
    or on another machine, has another id: its workers would look dead because their files are elsewhere."""
    try:
        boot, folder = BOOT_ID.read_text(), directory.stat()
    except OSError:
        return ""
    parts = f"{boot}\n{socket.gethostname()}\n{folder.st_dev}\n{folder.st_ino}"
    return blake2b(parts.encode(), digest_size=8).hexdigest()


def _may_be_locked(path: Path) -> bool:
    """Return False only for a file that is certainly not locked; one that vanished may have a successor."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # also on file systems without locks
        return True
    finally:
        os.close(handle)
    return False
