"""Downloads of files and of the contents of jobs: never shown by a browser, few at a time, with an audit entry."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import quote

from gateway.accounts import audit
from gateway.files.file_rows import FileRow
from gateway.surfaces.bodies import stored_files
from gateway.surfaces.management import exports
from gateway.surfaces.management.managed_operation import ManagedCall
from gateway.surfaces.web.http import Outbound

# A browser that opened one of these in spite of its disposition would give it neither scripts nor the site's origin.
SANDBOX = ("Content-Security-Policy", "sandbox; default-src 'none'")
MAX_NOTED = 80  # characters of a range
REPLACED = ("content-type", "cache-control", "vary", "content-disposition", "x-content-type-options")


def headers_of(name: str) -> list[tuple[str, str]]:
    """Return the headers of a download. The name of a file may be anything."""
    return [
        ("Content-Type", stored_files.OCTETS),
        ("Content-Disposition", f"attachment; filename*=UTF-8''{quote(name, safe='')}"),
        ("X-Content-Type-Options", "nosniff"),
        ("Cache-Control", "no-store"),
        SANDBOX,
    ]


def file_opener(call: ManagedCall[Any], file: FileRow) -> Callable[[], Outbound]:
    """Return a function that opens the content of a file, or the part that the Range header names."""
    return partial(stored_files.send, call.services, call.inbound, file)


def send(
    call: ManagedCall[Any],
    organization_id: str,
    name: str,
    open_content: Callable[[], Outbound],
    write_entry: Callable[[], None],
) -> Outbound:
    """Return what `open_content` opens as a download, once `write_entry` has written its audit entry. It takes an
    export slot of the organization. RangeNotSatisfiable, RateLimited, Unavailable."""
    held = exports.take_slots(call.visitor, [organization_id])
    try:
        outbound = open_content()
    except BaseException:
        held.give()
        raise
    body = outbound.body
    pieces: Iterator[bytes] = iter([body]) if isinstance(body, bytes) else body
    streamed = exports.hold_while(pieces, held)
    try:
        write_entry()
    except BaseException:
        streamed.close()
        raise
    kept = [(header, value) for header, value in outbound.headers if header.lower() not in REPLACED]
    return Outbound(outbound.status, [*headers_of(name), *kept], streamed)


def note(call: ManagedCall[Any], action: str, subject: str, organization_id: str, project_id: str, **more: str) -> None:
    """Write the audit entry of an operation on a file or job, for a download in parts with the range of each part: any
    of them may have nearly the whole content."""
    now = call.services.clock.now_us()
    part = call.inbound.header("range") if call.inbound.method == "GET" else ""
    if part:
        more["range"] = part[:MAX_NOTED]

    def write() -> None:
        audit.append(
            action,
            subject,
            actor=call.actor,
            at_us=now,
            organization_id=organization_id,
            detail={"project": project_id, **more},
        )

    call.database.write(write)
