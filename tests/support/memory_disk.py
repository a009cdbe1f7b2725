"""Places temporary files in memory: stores of tests are copied, written and removed by the thousand."""

import os

MEMORY, DISK = "/dev/shm", "/tmp"
ROOM = 2 << 30  # bytes; a run of all tests needs a fraction of it


def find_folder(programs: bool = True) -> str:
    """Return a parent of temporary folders. In a container, memory often has no room or may not hold `programs`."""
    if not os.access(MEMORY, os.W_OK | os.X_OK):
        return DISK
    found = os.statvfs(MEMORY)
    fits = found.f_bavail * found.f_frsize >= ROOM
    return MEMORY if fits and not (programs and found.f_flag & os.ST_NOEXEC) else DISK
