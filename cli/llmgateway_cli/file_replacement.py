"""Replacement of a file in one step, so that an interruption leaves the old one."""

import os
from pathlib import Path

from llmgateway_cli.errors import CliError

PRIVATE = 0o600


def replace_file(path: Path, text: str, mode: int = PRIVATE, folder_mode: int | None = None) -> None:
    """Write a file with these permissions. A link to a file elsewhere stays a link, and missing folders are created;
    the file's own folder gets `folder_mode`. Raises CliError if that is not possible."""
    target = path.resolve()
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        if folder_mode is not None:
            path.parent.mkdir(mode=folder_mode, parents=True, exist_ok=True)
            path.parent.chmod(folder_mode)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE)
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            partial.chmod(mode)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise CliError(f"{path} cannot be written: {reason}.", "Check the permissions of the folder.") from None
