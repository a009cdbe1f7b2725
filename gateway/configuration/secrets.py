"""Secrets from an environment variable, or from the file that another variable names."""

from collections.abc import Hashable, Mapping
from pathlib import Path

from gateway.configuration.file import missing_file


class SettingsError(Exception):
    """All problems of the configuration, one line each."""


def read_secret(environment: Mapping[str, str], name: str) -> str:
    """Return NAME, else the stripped contents of the file named by NAME_FILE, else "". Raise SettingsError if
    unreadable.
    """
    value = environment.get(name, "")
    if value:
        return value
    path = environment.get(f"{name}_FILE", "")
    if not path:
        return ""
    try:
        return Path(path).read_text().strip()
    except FileNotFoundError:
        raise SettingsError(f"{name}_FILE: cannot read {missing_file(Path(path))}") from None
    except OSError as error:
        raise SettingsError(f"{name}_FILE: cannot read {path}: {error.strerror}") from None


def stamp_files(environment: Mapping[str, str]) -> tuple[Hashable, ...]:
    """Return a value that changes when a file that a NAME_FILE names is written, replaced or removed.

    Kubernetes replaces a mounted secret by a new link, which `stat` follows.
    """
    return tuple(_stamp_file(path) for name, path in sorted(environment.items()) if name.endswith("_FILE"))


def _stamp_file(path: str) -> Hashable:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
