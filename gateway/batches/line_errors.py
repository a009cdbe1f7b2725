"""The errors of the lines of a batch, in pages: those of its results while it runs, afterwards those in its files."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from gateway.batches.batch_runs import RunParts
from gateway.batches.batch_table import BatchJob
from gateway.batches.input_lines import InputLine, find_ids
from gateway.batches.line_port import LineError, LinePort
from gateway.errors import GatewayError, InvalidRequest, NotFound
from gateway.runtime.loop_turns import low_priority_turn
from gateway.runtime.threads import compute_if

MAX_READ_LINES = 10_000  # of a file, for one page
MAX_READ_BYTES = 32 << 20
MAX_INPUT_BYTES = 32 << 20  # of the input of a running batch, in which one page looks for the ids of its lines
LARGE = 1 << 16  # bytes of a line that is read in a thread
CURSOR = re.compile(r"(\d{1,12})-(\d{1,9})(?:-(\d{1,9}))?")
UNKNOWN_CURSOR = "Unknown cursor: send the `next` of the page before."


class ErrorPage(NamedTuple):
    """A page of errors, and the cursor of the following one, "" at the end. A page may be short, or empty, and still
    have one that follows."""

    errors: list[LineError]
    following: str


class _Place(NamedTuple):
    """Where a page begins: the byte of a file, and the number of the last line before. Errors of lines up to the number
    `after`, if it is larger, were listed while the batch ran."""

    offset: int
    number: int
    after: int = 0

    def write(self) -> str:
        return f"{self.offset}-{self.number}" + (f"-{self.after}" if self.after > self.number else "")


def read_errors(parts: RunParts, port: LinePort, job: BatchJob, cursor: str, limit: int) -> ErrorPage:
    """Return up to `limit` errors of a batch. InvalidRequest for an unknown cursor, NotFound where the file was
    deleted, Unavailable."""
    place = _read_cursor(cursor)
    if job.ended.errors:
        return _of_check(job, place, limit)
    if not job.has_ended:
        return _of_results(parts, port, job, place, limit)
    return _of_file(parts, port, job, place, limit)


def _read_cursor(cursor: str) -> _Place:
    if not cursor:
        return _Place(0, 0)
    found = CURSOR.fullmatch(cursor)
    if found is None:
        raise InvalidRequest(UNKNOWN_CURSOR, param="cursor")
    return _Place(int(found[1]), int(found[2]), int(found[3] or 0))


def _of_check(job: BatchJob, place: _Place, limit: int) -> ErrorPage:
    """Return errors of the check before the first line was sent."""
    errors = job.ended.errors
    end = place.offset + limit
    page = [LineError(one.line, "", 0, one.code, one.message) for one in errors[place.offset : end]]
    return ErrorPage(page, _Place(end, 0).write() if end < len(errors) else "")


def _of_results(parts: RunParts, port: LinePort, job: BatchJob, place: _Place, limit: int) -> ErrorPage:
    rows = parts.lines.failed(job.id, place.number, limit + 1)
    task = parts.rows.task_of(job)
    shown = rows[:limit]
    idents = _find_ids(parts, job, {row.number for row in shown})
    errors = []
    for row in shown:
        line = InputLine(row.number, idents.get(row.number, ""))
        text = port.write_result(task, line, row.request, row.status, parts.lines.open(row), "")
        error = compute_if(len(text) > LARGE, port.read_error, task, text)
        if error is not None:
            errors.append(error._replace(line=row.number))
    following = _Place(0, shown[-1].number).write() if len(rows) > limit else ""
    return ErrorPage(errors, following)


def _find_ids(parts: RunParts, job: BatchJob, numbers: set[int]) -> dict[int, str]:
    """Return the ids that the caller gave lines, as far as they are near the beginning of the input."""
    kept = parts.files.find_kept(job.input) if numbers else None
    if kept is None:
        return {}
    try:
        pieces = parts.files.open(kept)
        try:
            return find_ids(pieces, parts.max_line_bytes, numbers, MAX_INPUT_BYTES)
        finally:
            _close(pieces)
    except GatewayError:
        return {}


def _of_file(parts: RunParts, port: LinePort, job: BatchJob, place: _Place, limit: int) -> ErrorPage:
    task = parts.rows.task_of(job)
    whole = task.one_file
    ident = job.ended.output_file if whole else job.ended.error_file
    if not ident:
        return ErrorPage([], "")
    file = parts.files.find_kept(ident)
    if file is None:
        raise NotFound("The file with the errors of this job was deleted.", code="job_file_deleted")
    if place.offset >= file.size:
        return ErrorPage([], "")
    errors: list[LineError] = []
    # A cursor from before the end of the batch has the number of a line alone.
    offset, number, after = place if place.offset else (0, 0, place.number)
    read = 0
    pieces = parts.files.open(file, max(0, offset - 1))
    try:
        lines = _split(pieces)
        if offset and next(lines, None) != b"":
            raise InvalidRequest(UNKNOWN_CURSOR, param="cursor")  # it points into a line
        for text in lines:
            if len(errors) == limit or read == MAX_READ_LINES or offset - place.offset > MAX_READ_BYTES:
                return ErrorPage(errors, _Place(offset, number, after).write())
            low_priority_turn()
            offset += len(text) + 1
            read += 1
            error = compute_if(len(text) > LARGE, port.read_error, task, text)
            if whole:
                number += 1
            elif error is not None:
                number = error.line or 0
            if error is not None and (not number or number > after):
                errors.append(error._replace(line=number or None))
    finally:
        _close(pieces)
    return ErrorPage(errors, "")


def _split(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file that the gateway wrote, each of which ends with a line break."""
    parts: list[bytes] = []
    for piece in pieces:
        *ended, rest = piece.split(b"\n")
        for text in ended:
            yield b"".join((*parts, text))
            parts = []
        parts.append(rest)


def _close(pieces: Iterator[bytes]) -> None:
    close: Callable[[], None] | None = getattr(pieces, "close", None)
    if close is not None:
        close()
