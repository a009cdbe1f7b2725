"""Stores generated images for the operator: files in the folder UPLOAD_DIR, and nowhere else."""

import os
import re

from gateway.errors import InvalidRequest
from gateway.neutral.encoded import decode_base64
from gateway.neutral.parts import Media
from gateway.surfaces.mcp.tool_results import ToolContext

ENDINGS = {"image/png": "png", "image/jpeg": "jpg", "image/webp": "webp", "image/gif": "gif"}
KNOWN = frozenset((*ENDINGS.values(), "jpeg"))
FILE_STEM = "alt-image"
MAX_ATTEMPTS = 1000
BAD = re.compile(r"[/\\\x00-\x1f\x7f]|^[A-Za-z]:|^\.")
MAX_NAME_LENGTH = 200  # characters of a name; file systems allow 255


def check_name(name: str) -> str:
    """Return the name unchanged. Raises InvalidRequest unless it is the bare name of a file."""
    if BAD.search(name) or len(name.encode("utf-8", "replace")) > MAX_NAME_LENGTH or name != name.strip():
        raise InvalidRequest(
            "The filename must be a bare name, without folders, drives or a leading dot.", param="filename"
        )
    return name


def save(ctx: ToolContext, name: str, images: list[Media]) -> str:
    """Save the images under `name` ("" = a name with the time) and return a message; "" where no folder is configured
    or the organization disabled retention."""
    folder = ctx.services.settings.media.upload_dir
    caller = ctx.caller
    private = any(level.policy is not None and level.policy.zero_data_retention for level in caller.rules)
    if not folder or private or not images:
        return ""
    stem, dot, ending = name.rpartition(".")
    if not dot or ending.lower() not in KNOWN:
        stem = name
        ending = ""
    stem = stem or f"{FILE_STEM}-{ctx.services.clock.now_us() // 1000}"
    try:
        saved = ctx.services.background.threads.run(_write_all, folder, stem, ending, images)
    except (OSError, ValueError):
        return "The image could not be saved on the server."
    return "Saved: " + ", ".join(os.path.join(folder, name) for name in saved)


def _write_all(folder: str, stem: str, ending: str, images: list[Media]) -> list[str]:
    os.makedirs(folder, mode=0o700, exist_ok=True)
    room = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return [
            _write(
                room,
                stem if len(images) == 1 else f"{stem}-{number}",
                ending or ENDINGS.get(image.media_type, "png"),
                decode_base64(image.data),
            )
            for number, image in enumerate(images, 1)
        ]
    finally:
        os.close(room)


def _write(room: int, stem: str, ending: str, data: bytes) -> str:
    """Write a new file in the open folder; an existing file or link is never followed or overwritten."""
    for number in range(MAX_ATTEMPTS):
        if not number:
            name = f"{stem}.{ending}"
        else:
            name = f"{stem}-{number + 1}.{ending}"
        try:
            file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=room)
        except FileExistsError:
            continue
        with os.fdopen(file, "wb") as opened:
            opened.write(data)
        return name
    raise FileExistsError(stem)
