"""Inlines stored files: a request that names files of the gateway is read again with their contents in it. Large files
stay in the store until it is known which provider gets them (files/request_files.py)."""

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson

from gateway.callers.authentication import Caller
from gateway.errors import RequestTooLarge
from gateway.files.file_rows import FileRow
from gateway.files.project_files import Files
from gateway.files.request_files import MAX_FILES, RequestFiles, as_base64
from gateway.files.stored_documents import StoredDocumentExecutor
from gateway.guardrails.checked_texts import reads_file
from gateway.neutral.chat import ChatRequest
from gateway.neutral.own_files import OwnFileNamed, is_own_file
from gateway.neutral.structured import OcrRequest
from gateway.runtime.threads import compute, hold_more
from gateway.surfaces.web.http import Handler, Inbound, Outbound
from gateway.worker.services import Services

FILE_ID = "file_id"
INLINED = 16 << 20  # bytes of a request with its files that every provider takes
SHARE = 3  # bytes in memory for each byte of a file: its base64 in the body, and again in the decoded request
SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/flac": "flac"}
Json = dict[str, Any]


class InlinedFile:
    """A file as parts of requests have it."""

    def __init__(self, name: str, media_type: str, data: bytes) -> None:
        self.name = name
        self.media_type = media_type
        self.data = data

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")

    @property
    def base64(self) -> str:
        return base64.b64encode(self.data).decode()

    @property
    def url(self) -> str:
        return f"data:{self.media_type};base64,{self.base64}"


def respond(services: Services, inbound: Inbound, handler: Handler, error: OwnFileNamed) -> Outbound:
    """Call the handler of a request again, with the contents of the files that it names. NotFound for a file of another
    project, RequestTooLarge; `error` where the request is no JSON."""
    context = inbound.context
    if context is None or inbound.upload is not None:
        raise error
    parts, idents = compute(_find_parts, inbound.body)
    rows = _rows_of(services, context.caller, idents)
    size = as_base64(sum(row.size for row in rows)) + len(inbound.body)
    maximum = services.settings.server.max_body_mb << 20
    # Earlier turns, which the gateway stored, may name files too. The lines of batches have their files in them.
    if context.operation == ChatRequest.operation and context.job is None and (not rows or size > INLINED):
        return handler(_with_files(services, context.caller), inbound)
    if context.operation == OcrRequest.operation and context.job is None and len(rows) == 1 and size > maximum:
        return handler(_with_document(services, rows[0]), inbound)
    inbound.body = _fill(services, parts, rows, size, error)
    return handler(services, inbound)


def _with_document(services: Services, row: FileRow) -> Services:
    """Return the services for an OCR request whose document is not in its body."""
    engine = services.engine
    at_providers = engine.provider_files
    spool_dir = services.settings.spool_dir
    executor = StoredDocumentExecutor(engine.executor, row, engine.files, at_providers, spool_dir)
    return replace(services, engine=replace(engine, executor=executor))


def _with_files(services: Services, caller: Caller) -> Services:
    """Return the services for a request whose files are not in its body."""
    engine = services.engine
    settings = services.settings
    rules = engine.guarding.rules_of(caller)

    def is_read(media_type: str) -> bool:
        return not isinstance(rules, str) and reads_file(rules, media_type)

    files = RequestFiles(
        caller,
        engine.files,
        engine.provider_files,
        engine.file_counts,
        settings.server.max_body_mb << 20,
        settings.files.provider_uploads,
        is_read,
    )
    return replace(services, engine=replace(engine, chat=engine.chat.with_files(files)))


def inline(services: Services, caller: Caller, body: bytes, error: OwnFileNamed) -> bytes:
    """Return a JSON body with the contents of the files that it names."""
    parts, idents = compute(_find_parts, body)
    rows = _rows_of(services, caller, idents)
    return _fill(services, parts, rows, as_base64(sum(row.size for row in rows)) + len(body), error)


def _rows_of(services: Services, caller: Caller, idents: list[str]) -> list[FileRow]:
    if len(idents) > MAX_FILES:
        raise RequestTooLarge(f"A request may name {MAX_FILES} files.", param=FILE_ID)
    return [services.engine.files.find(caller, ident, FILE_ID) for ident in idents]


def _fill(services: Services, parts: Any, rows: list[FileRow], size: int, error: OwnFileNamed) -> bytes:
    """Return a decoded body as JSON of `size` bytes with the contents of files."""
    if not rows:
        raise error
    maximum = services.settings.server.max_body_mb << 20
    if size > maximum:
        raise RequestTooLarge(f"The files of a request may have {maximum >> 20} MB as base64 together.", param=FILE_ID)
    files = services.engine.files
    hold_more(sum(row.size for row in rows) * SHARE)
    loaded = {row.id: _load(files, row) for row in rows}
    return compute(_write, parts, loaded)


def _load(files: Files, row: FileRow) -> InlinedFile:
    pieces = files.open(row)
    data = b"".join(pieces)
    return InlinedFile(files.name_of(row), row.media_type, data)


def _find_parts(body: bytes) -> tuple[Any, list[str]]:
    """Return the decoded body, and the ids of the gateway's files in it."""
    root = orjson.loads(body)
    return root, list(dict.fromkeys(holder[FILE_ID] for holder in _holders(root)))


def _holders(root: Any) -> Iterator[Json]:
    """Yield the objects with the id of a file of the gateway."""
    rest = [root]
    while rest:
        node = rest.pop()
        if isinstance(node, dict):
            ident = node.get(FILE_ID)
            if isinstance(ident, str) and is_own_file(ident):
                yield node
            rest += [inner for inner in node.values() if isinstance(inner, dict | list)]
        else:
            rest += [inner for inner in node if isinstance(inner, dict | list)]


def _write(root: Any, files: dict[str, InlinedFile]) -> bytes:
    rest = [root]
    while rest:
        node = rest.pop()
        if isinstance(node, dict):
            _replace(node, files)
            rest += [inner for inner in node.values() if isinstance(inner, dict | list)]
        else:
            rest += [inner for inner in node if isinstance(inner, dict | list)]
    return orjson.dumps(root)


def _replace(node: Json, files: dict[str, InlinedFile]) -> None:
    """Replace the id of a file in a part, in the form of any dialect, by its content."""
    match node:
        case {"type": "file", "file": {"file_id": str(ident)}} if ident in files:  # chat completions
            _set(node, _write_chat_part(files[ident]))
        case {"type": "input_file", "file_id": str(ident)} if ident in files:  # responses
            file = files[ident]
            if file.media_type.startswith("image/"):
                _set(node, {"type": "input_image", "image_url": file.url})
            else:
                node |= {"filename": node.get("filename") or file.name, "file_data": file.url}
                del node[FILE_ID]
        case {"type": "input_image", "file_id": str(ident)} if ident in files:
            node["image_url"] = files[ident].url
            del node[FILE_ID]
        case {"source": {"type": "file", "file_id": str(ident)}} if ident in files:  # messages
            node["source"] = _write_source(files[ident])
        case {"type": "file", "file_id": str(ident)} if ident in files:  # OCR
            file = files[ident]
            kind = "image_url" if file.media_type.startswith("image/") else "document_url"
            _set(node, {"type": kind, kind: file.url})


def _set(node: Json, part: Json) -> None:
    """Replace a part; members that say nothing about its file stay."""
    for name in ("file", FILE_ID):
        node.pop(name, None)
    node |= part


def _write_chat_part(file: InlinedFile) -> Json:
    if file.media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": file.url}}
    if file.media_type in SOUNDS:
        return {"type": "input_audio", "input_audio": {"data": file.base64, "format": SOUNDS[file.media_type]}}
    return {"type": "file", "file": {"filename": file.name, "file_data": file.url}}


def _write_source(file: InlinedFile) -> Json:
    if file.media_type.startswith("text/"):
        return {"type": "text", "media_type": "text/plain", "data": file.text}
    return {"type": "base64", "media_type": file.media_type, "data": file.base64}
