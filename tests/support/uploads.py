"""Finds uploads of this process on the disk."""

import os
from pathlib import Path


def spooled_files() -> set[str]:
    """Return open unnamed files in a spool folder, by the name that the system shows for them."""
    links = set()
    for one in Path("/proc/self/fd").iterdir():
        try:
            links.add(os.readlink(one))
        except OSError:
            continue  # closed in the meantime
    return {link for link in links if link.endswith("(deleted)") and "/spool/" in link}
