"""Stored files in every dialect: the form that uploads one, and its content as a response."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from gateway.errors import InvalidRequest, RangeNotSatisfiable
from gateway.files.file_rows import FileRow
from gateway.runtime.byte_ranges import NoSuchRange, read_range
from gateway.surfaces.bodies.validation_errors import invalid, missing
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web.forms import Form, FormFile, FormLimits
from gateway.surfaces.web.http import VARY_BY_KEY, HeaderParameter, Inbound, Outbound
from gateway.worker.services import Services

RANGE = HeaderParameter("range", "The requested byte range of the file, such as bytes=0-65535.")
CONTENT: dict[str, Any] = {"type": "string", "format": "binary"}
OCTETS = "application/octet-stream"
MIN_LIFETIME_S = 3_600  # in every dialect
# A media type that a browser or a header could misread is not repeated.
is_media_type = re.compile(r"[A-Za-z0-9][\w.+-]{0,62}/[A-Za-z0-9][\w.+-]{0,62}", re.ASCII).fullmatch
KINDS = {
    "jsonl": "application/jsonl",
    "json": "application/json",
    "pdf": "application/pdf",
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "txt": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
}


def limits_of(services: Services) -> FormLimits:
    """Return the limits of a form with one file."""
    maximum = min(services.settings.server.max_form_mb, services.settings.files.max_mb) << 20
    return FormLimits(parts=16, files=1, field_bytes=4096, file_bytes=maximum)


def file_of(form: Form, name: str) -> FormFile:
    """Return the file of a form. Raises InvalidRequest."""
    file = next((file for file in form.files if file.name == name), None)
    if file is None:
        raise missing(name)
    if not len(file.data):
        raise InvalidRequest("The file is empty.", param=name, code="empty_file")
    return file


def lifetime_of(form: Form, field: str, param: str, most: int) -> int | None:
    """Return the seconds in a field of a form after which its file expires, None without the field. Raises
    InvalidRequest that names `param`."""
    text = form.text(field)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and MIN_LIFETIME_S <= int(text[:12]) <= most):
        raise invalid(param, f"expected a number from {MIN_LIFETIME_S} to {most}")
    return int(text)


def media_type_of(given: str, name: str) -> str:
    """Return the media type of a file: the given one, else that of its name."""
    kind = given.partition(";")[0].strip().lower()
    if kind and kind != OCTETS and is_media_type(kind):
        return kind
    return KINDS.get(name.rpartition(".")[2].lower(), OCTETS)


def find(services: Services, inbound: Inbound) -> FileRow:
    """Return the file of the path. NotFound."""
    return services.engine.files.find(auth_module.caller_of(services, inbound), inbound.params["file_id"])


def send(services: Services, inbound: Inbound, file: FileRow) -> Outbound:
    """Return the content of a file, or the part that the Range header names."""
    headers = [
        ("Content-Type", file.media_type or OCTETS),
        ("Content-Disposition", f"attachment; filename*=UTF-8''{quote(services.engine.files.name_of(file), safe='')}"),
        ("X-Content-Type-Options", "nosniff"),
        ("Accept-Ranges", "bytes"),
        ("Cache-Control", "private, no-transform"),
        ("Vary", f"{VARY_BY_KEY}, Range"),
        ("x-request-id", inbound.shown_id),
    ]
    try:
        part = read_range(inbound.header("range"), file.size)
    except NoSuchRange:
        where = (("Content-Range", f"bytes */{file.size}"),)
        raise RangeNotSatisfiable("The requested range is outside of the file.", param="range", headers=where) from None
    start, end = part or (0, file.size)
    headers.append(("Content-Length", str(end - start)))
    if part is not None:
        headers.append(("Content-Range", f"bytes {start}-{end - 1}/{file.size}"))
    pieces: Iterator[bytes] = services.engine.files.open(file, start, end)
    return Outbound(200 if part is None else 206, headers, pieces)
