"""Free space on the disks that a worker writes to."""

import getpass
import os
import tempfile
from pathlib import Path

from gateway.configuration.file import SettingsError
from gateway.configuration.settings import DatabaseSettings

# Covers the next file of the crash journal and the growth of SQLite's log between two checkpoints.
MIN_FREE_BYTES = 8 << 20


def full_disks(config: DatabaseSettings) -> list[str]:
    """Return a line for each disk without room to continue; a disk that reports no figures counts as free."""
    places = {"GATEWAY_DATA_DIR": Path(config.data_dir)}
    if config.scheme == "sqlite" and config.url:
        places["the database file"] = Path(config.url.removeprefix("sqlite:///")).parent
    return [f"the disk of {name} is full" for name, path in places.items() if free_bytes(path) < MIN_FREE_BYTES]


def free_bytes(path: Path) -> int:
    """Return the bytes that this user may still write at `path`; 2**62 where the file system does not report them."""
    try:
        state = os.statvfs(path)
    except OSError:
        return 1 << 62
    if state.f_blocks:
        return state.f_bavail * state.f_frsize
    return 1 << 62


def check_folder(path: Path) -> None:
    """Create the data folder (mode 0700) where it is missing. SettingsError when this user cannot write to it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except (FileExistsError, NotADirectoryError):
        raise SettingsError(
            f"GATEWAY_DATA_DIR: {path.absolute()} is, or lies in, a file; set a writable folder"
        ) from None
    except OSError as error:
        raise SettingsError(
            f"GATEWAY_DATA_DIR: cannot write to {path.absolute()}: {error.strerror}; make it writable for the user "
            f"{getpass.getuser()}, or set another folder"
        ) from None


def check_room(path: Path) -> None:
    """SettingsError when the disk of the data folder has no room for a first start. Later starts wait for room."""
    free = free_bytes(path)
    if free < MIN_FREE_BYTES:
        raise SettingsError(
            f"GATEWAY_DATA_DIR: the disk of {path.absolute()} is full ({free >> 20} MB left, {MIN_FREE_BYTES >> 20} "
            "are needed); make room, or set another folder"
        )
