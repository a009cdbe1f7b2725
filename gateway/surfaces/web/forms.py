"""Multipart forms (RFC 7578): fields as text and files as stored files, within the limits of an operation."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import orjson
from msgspec import Struct
from multipart import MultipartError, MultipartSegment, ParserLimitReached, PushMultipartParser, parse_options_header

from gateway.errors import InvalidRequest, RequestTooLarge, UnsupportedMediaType
from gateway.runtime.large_files import PIECE_BYTES, StoredFile
from gateway.runtime.threads import compute_if
from gateway.surfaces.web.http import Inbound

BOUNDARY_LENGTH = 256  # RFC 2046 allows 70; some clients send more
HEADERS, HEADER_BYTES = 8, 4224  # bytes of the headers of one part
THREAD_BYTES = 1 << 16  # bytes; a longer form is read in a thread
FILE: dict[str, Any] = {"type": "string", "format": "binary"}  # the schema of a field with a file


class FormLimits(Struct, frozen=True):
    """Limits on a form of one operation: parts in total, files among them, bytes of one text field, of one file."""

    parts: int = 64
    files: int = 1
    field_bytes: int = 1 << 20
    file_bytes: int = 128 << 20


@dataclass(frozen=True, slots=True)
class FormFile:
    """A file of a form. The caller sets `filename` and `content_type`; neither can be trusted."""

    name: str
    filename: str
    content_type: str
    data: StoredFile = field(repr=False)


@dataclass(slots=True)
class Form:
    """The fields in order, by name; a name may occur several times (`include[]`)."""

    fields: list[tuple[str, str]] = field(default_factory=list)
    files: list[FormFile] = field(default_factory=list)

    def texts(self, name: str) -> list[str]:
        return [value for key, value in self.fields if key == name]

    def text(self, name: str, default: str = "") -> str:
        """Return the last value of a field."""
        return next(reversed(self.texts(name)), default)


def require_form(inbound: Inbound) -> StoredFile:
    """Return the body of a form. Raises InvalidRequest `invalid_content_type` for any other body."""
    if inbound.upload is None:
        raise UnsupportedMediaType(
            "Send the body as a form with the header 'Content-Type: multipart/form-data'.",
            code="invalid_content_type",
            status=400,
        )
    return inbound.upload


def read_form(inbound: Inbound, limits: FormLimits, spool_dir: str = "") -> Form:
    """Return the form of a request; its large files are stored in `spool_dir`.

    Raises InvalidRequest (invalid_content_type, malformed_form, too_many_parts, invalid_parameters) or RequestTooLarge.
    """
    body = require_form(inbound)
    boundary = _boundary_of(inbound.header("content-type"))
    form = compute_if(len(body) >= THREAD_BYTES, _read, body, boundary, limits, spool_dir)
    inbound.files += tuple(file.data for file in form.files)
    body.close()  # the parts were copied
    return form


def describe_form(form: Form) -> bytes:
    """Return the retained description of a form: its fields, and only the size of each file."""
    files = [{"name": file.name, "filename": file.filename, "bytes": len(file.data)} for file in form.files]
    return orjson.dumps({"fields": form.fields, "files": files})


def describe_fields(fields: type, files: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a form with these fields, typed as in the struct that validates them, and these files.
    A field that may be null in JSON is optional in a form."""
    (schema,), parts = msgspec.json.schema_components([fields])
    resolved = parts[schema["$ref"].rpartition("/")[2]]
    properties = {name: _without_null(one) for name, one in resolved["properties"].items()}
    return {"type": "object", "required": resolved["required"], "properties": {**properties, **files}}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) == 1:
        choice: dict[str, Any] = choices[0]
        return choice
    return schema


def digest_without(body: StoredFile, boundary: bytes) -> bytes:
    """Return a hash of a form's content without the boundary, which changes each time the form is sent."""
    digest = hashlib.sha256()
    carried = b""
    kept = max(0, len(boundary) - 1)
    for piece in body.pieces():
        rest = carried + piece
        if boundary:
            rest = rest.replace(boundary, b"")
        cut = max(0, len(rest) - kept)
        digest.update(rest[:cut])
        carried = rest[cut:]
    digest.update(carried)
    return digest.digest()


def _boundary_of(content_type: str) -> str:
    boundary: str = parse_options_header(content_type)[1].get("boundary", "")
    if not boundary or len(boundary) > BOUNDARY_LENGTH:
        raise _malformed("its Content-Type has no boundary")
    return boundary


def _read(body: StoredFile, boundary: str, limits: FormLimits, spool_dir: str) -> Form:
    reader = _FormReader(limits, spool_dir)
    try:
        _parse(body, boundary, limits, reader)
    except BaseException:
        reader.close()
        raise
    return reader.form


def _parse(body: StoredFile, boundary: str, limits: FormLimits, reader: "_FormReader") -> None:
    try:
        with PushMultipartParser(
            boundary,
            content_length=len(body),
            max_header_size=HEADER_BYTES,
            max_header_count=HEADERS,
            max_segment_count=limits.parts + 1,
        ) as parser:
            at = 0
            while not parser.closed:
                piece = body.read(PIECE_BYTES, at)
                at += len(piece)
                for event in parser.parse(piece):
                    reader.take(event)
    except ParserLimitReached as error:
        raise _malformed(str(error).lower()) from None
    except (MultipartError, UnicodeError, ValueError) as error:
        raise _malformed(str(error).lower() or "it cannot be read") from None


class _FormReader:
    """Receives the parser's events and enforces the limits."""

    def __init__(self, limits: FormLimits, spool_dir: str) -> None:
        self.form = Form()
        self._limits = limits
        self._spool_dir = spool_dir
        self._parts = 0
        self._head: MultipartSegment | None = None
        self._text = bytearray()
        self._file: StoredFile | None = None

    def take(self, event: MultipartSegment | bytes | bytearray | None) -> None:
        if isinstance(event, MultipartSegment):
            self._begin(event)
        elif event is None:
            self._end()
        elif self._file is not None:
            self._grow_file(self._file, event)
        else:
            self._text += event
            if len(self._text) > self._limits.field_bytes:
                raise _too_large(self._name, self._limits.field_bytes)

    def close(self) -> None:
        """Delete the files of a form that was not read to its end."""
        for file in (self._file, *(part.data for part in self.form.files)):
            if file is not None:
                file.close()

    @property
    def _name(self) -> str:
        if self._head is not None:
            name: str = self._head.name[:64]
            return name
        return ""

    def _begin(self, head: MultipartSegment) -> None:
        self._head = head
        self._parts = self._parts + 1
        if self._parts > self._limits.parts:
            raise _too_many("parts", self._limits.parts)
        self._text = bytearray()
        if head.filename is not None:
            self._file = StoredFile(self._spool_dir)
        else:
            self._file = None
        if self._file is not None and len(self.form.files) >= self._limits.files:
            raise _too_many("files", self._limits.files)

    def _grow_file(self, file: StoredFile, data: bytes | bytearray) -> None:
        if len(file) + len(data) > self._limits.file_bytes:
            raise _too_large(self._name, self._limits.file_bytes)
        file.write(bytes(data))

    def _end(self) -> None:
        head = self._head
        if head is None:
            return
        if self._file is not None:
            kind = head.header("Content-Type", "") or ""
            self.form.files.append(FormFile(head.name, head.filename or "", kind, self._file))
            return
        try:
            self.form.fields.append((head.name, self._text.decode()))
        except UnicodeDecodeError:
            raise InvalidRequest(
                f"The field {self._name} is not UTF-8 text.", param=self._name, code="invalid_parameters"
            ) from None


def _malformed(why: str) -> InvalidRequest:
    return InvalidRequest(f"The form cannot be read: {why[:200]}.", code="malformed_form")


def _too_many(what: str, maximum: int) -> InvalidRequest:
    return InvalidRequest(f"The form has more than {maximum} {what}, which is the limit.", code="too_many_parts")


def _too_large(name: str, maximum: int) -> RequestTooLarge:
    return RequestTooLarge(f"{name} is larger than {maximum} bytes, which is the limit.", param=name)
