"""Which workers of this node have ended: the files of their crash journals (`intents`) are not locked any more."""

import fcntl
import glob
import os
import secrets
from pathlib import Path

ID_FILE = "folder-id"


class LiveWorkers:
    """The workers whose crash journals are in `directory`. `name` is that of this worker, unique among all nodes."""

    def __init__(self, directory: Path, owner: str) -> None:
        self._directory = directory
        self._folder = _identity_of(directory)
        self.name = f"{self._folder}/{owner}"

    def is_dead(self, name: str) -> bool:
        """Return whether a worker has certainly ended; nothing is known about workers of other nodes."""
        folder, _, owner = name.partition("/")
        if folder != self._folder or not owner or name == self.name:
            return False
        # A live worker locks all of its files, and has one at any time. The files of others are deleted at last.
        return not any(_is_locked(path) for path in self._directory.glob(f"{glob.escape(owner)}-*.log"))


def _identity_of(directory: Path) -> str:
    """Return the id of a folder, which the first process that asks for it writes."""
    path = directory / ID_FILE
    if not path.exists():
        hidden = directory / f"{ID_FILE}.{secrets.token_hex(4)}"
        hidden.write_text(secrets.token_hex(8))
        try:
            os.link(hidden, path)
        except FileExistsError:
            pass  # another process was first
        finally:
            hidden.unlink()
    return path.read_text()


def _is_locked(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
