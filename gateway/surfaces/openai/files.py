"""/v1/files and /v1/uploads: files that later requests name, in the format of OpenAI."""

from functools import partial
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.json import Decoder

from gateway.clock import DAY_US, SECOND_US
from gateway.files.file_rows import PENDING, FileRow
from gateway.files.project_files import NewFile
from gateway.surfaces.bodies import stored_files
from gateway.surfaces.bodies.validation_errors import invalid, missing, read_json
from gateway.surfaces.visitors.validation_schemas import Body, OneOf, QueryInteger, TextField, read_query
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.answer_structs import ModelApiAnswer, fill_page
from gateway.surfaces.web.forms import FILE, read_form
from gateway.surfaces.web.http import About, Inbound, Operation, Outbound
from gateway.worker.services import Services

TAG = "Files"
PURPOSES = ("assistants", "batch", "evals", "fine-tune", "user_data", "vision")
LISTED_PURPOSES = (*PURPOSES, "batch_output")
MAX_PAGE_SIZE = 10_000
DAY_S = DAY_US // SECOND_US
LIFETIME_FIELD = "expires_after[seconds]"
MAX_LIFETIME_S = 30 * DAY_S  # OpenAI API reference, files


class FileAnswer(ModelApiAnswer, kw_only=True):
    """OpenAI's file object. Times are seconds since 1970."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    expires_at: int | UnsetType = UNSET
    filename: str
    purpose: str
    status: Literal["processed"] = "processed"


class FileListAnswer(ModelApiAnswer, tag_field="object", tag="list"):
    data: list[FileAnswer]
    has_more: bool
    first_id: str | None = None
    last_id: str | None = None


class FileDeletedAnswer(ModelApiAnswer, kw_only=True):
    id: str
    object: Literal["file"] = "file"
    deleted: bool = True


class UploadAnswer(ModelApiAnswer, kw_only=True):
    """OpenAI's upload object. Times are seconds since 1970."""

    id: str
    object: Literal["upload"] = "upload"
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: str
    status: Literal["pending", "completed", "cancelled", "expired"]
    file: FileAnswer | None = None


class UploadPartAnswer(ModelApiAnswer, kw_only=True):
    id: str
    object: Literal["upload.part"] = "upload.part"
    created_at: int
    upload_id: str


class FileQuery(Body):
    after = TextField(1, 80)
    limit = QueryInteger(1, MAX_PAGE_SIZE, load_default=MAX_PAGE_SIZE)
    order = OneOf(("asc", "desc"), load_default="desc")
    purpose = OneOf(LISTED_PURPOSES)


class FileExpiry(Struct, kw_only=True):
    anchor: Literal["created_at"] = "created_at"
    seconds: Annotated[int, Meta(ge=stored_files.MIN_LIFETIME_S, le=MAX_LIFETIME_S)]


class UploadBody(Struct, kw_only=True):
    """The description of a file that is uploaded in parts."""

    bytes: Annotated[int, Meta(ge=1)]
    filename: Annotated[str, Meta(min_length=1, max_length=1000)]
    mime_type: Annotated[str, Meta(max_length=255)]
    purpose: Literal[PURPOSES]  # type: ignore[valid-type]
    expires_after: FileExpiry | None = None


class UploadCompletion(Struct, kw_only=True):
    """The parts of an upload in their order."""

    part_ids: Annotated[list[str], Meta(max_length=1000)]
    md5: Annotated[str, Meta(pattern="^[0-9a-fA-F]{32}$")] | None = None


UPLOAD = Decoder(UploadBody)
COMPLETION = Decoder(UploadCompletion)
FORM_FIELDS = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {
        "file": FILE,
        "purpose": {"type": "string", "enum": list(PURPOSES)},
        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
        LIFETIME_FIELD: {"type": "integer", "minimum": stored_files.MIN_LIFETIME_S, "maximum": MAX_LIFETIME_S},
    },
}
PART_FIELDS = {"type": "object", "required": ["data"], "properties": {"data": FILE}}


def create(services: Services, inbound: Inbound) -> Outbound:
    """Store a file. Its id works as an input of chat completions, responses, messages, OCR and transcriptions, and a
    file with the purpose `batch` as the lines of a batch."""
    caller = auth_module.caller_of(services, inbound)
    form = read_form(inbound, stored_files.limits_of(services), services.settings.spool_dir)
    file = stored_files.file_of(form, "file")
    purpose = form.text("purpose")
    if purpose not in PURPOSES:
        raise missing("purpose") if not purpose else invalid("purpose", f"expected one of {', '.join(PURPOSES)}")
    kind = stored_files.media_type_of(file.content_type, file.filename)
    lifetime_s = stored_files.lifetime_of(form, LIFETIME_FIELD, "expires_after.seconds", MAX_LIFETIME_S)
    new = NewFile(file.filename, kind, purpose, lifetime_s)
    stored = services.engine.files.create(caller, new, len(file.data), file.data.pieces())
    return http_responses_module.json_reply(show(services, stored), inbound.shown_id)


def list_files(services: Services, inbound: Inbound) -> Outbound:
    """List the files of the key's project, for a customer key its own, one page at a time."""
    caller = auth_module.caller_of(services, inbound)
    given = read_query(FileQuery, inbound)
    limit = given["limit"]
    rows = services.engine.files.page(
        caller, given.get("after", ""), limit + 1, given["order"] == "desc", given.get("purpose", "")
    )
    page = FileListAnswer([], has_more=len(rows) > limit)
    fill_page(page, rows[:limit], partial(show, services))
    return http_responses_module.json_reply(page, inbound.shown_id)


def retrieve(services: Services, inbound: Inbound) -> Outbound:
    """Show a file."""
    return http_responses_module.json_reply(show(services, stored_files.find(services, inbound)), inbound.shown_id)


def delete(services: Services, inbound: Inbound) -> Outbound:
    """Delete a file. A batch that was created with it continues."""
    ident = inbound.params["file_id"]
    services.engine.files.delete(auth_module.caller_of(services, inbound), ident)
    return http_responses_module.json_reply(FileDeletedAnswer(id=ident), inbound.shown_id)


def content(services: Services, inbound: Inbound) -> Outbound:
    """Download the content of a file, complete or in the byte range of the Range header."""
    return stored_files.send(services, inbound, stored_files.find(services, inbound))


def begin_upload(services: Services, inbound: Inbound) -> Outbound:
    """Begin the upload of a file in parts; it expires after an hour."""
    caller = auth_module.caller_of(services, inbound)
    auth_module.require_json(inbound)
    body = read_json(services.settings.limits, UPLOAD, inbound.body)
    lifetime_s = body.expires_after.seconds if body.expires_after else None
    new = NewFile(body.filename, stored_files.media_type_of(body.mime_type, body.filename), body.purpose, lifetime_s)
    upload = services.engine.files.begin_upload(caller, new, body.bytes)
    return http_responses_module.json_reply(_show_upload(services, upload), inbound.shown_id)


def add_part(services: Services, inbound: Inbound) -> Outbound:
    """Upload a part. Parts may be sent at the same time and in any order."""
    caller = auth_module.caller_of(services, inbound)
    form = read_form(inbound, stored_files.limits_of(services), services.settings.spool_dir)
    data = stored_files.file_of(form, "data").data
    part = services.engine.files.add_part(caller, inbound.params["upload_id"], data.pieces())
    created = services.clock.now_us() // SECOND_US
    answer = UploadPartAnswer(id=part.id, created_at=created, upload_id=part.upload)
    return http_responses_module.json_reply(answer, inbound.shown_id)


def complete_upload(services: Services, inbound: Inbound) -> Outbound:
    """Join the parts of an upload, in the order of the list, into a file."""
    caller = auth_module.caller_of(services, inbound)
    auth_module.require_json(inbound)
    body = read_json(services.settings.limits, COMPLETION, inbound.body)
    ident = inbound.params["upload_id"]
    upload, file = services.engine.files.complete_upload(caller, ident, body.part_ids, body.md5 or "")
    return http_responses_module.json_reply(_show_upload(services, upload, file), inbound.shown_id)


def cancel_upload(services: Services, inbound: Inbound) -> Outbound:
    """Cancel an upload and delete its parts."""
    caller = auth_module.caller_of(services, inbound)
    upload = services.engine.files.cancel_upload(caller, inbound.params["upload_id"])
    return http_responses_module.json_reply(_show_upload(services, upload), inbound.shown_id)


def show(services: Services, file: FileRow) -> FileAnswer:
    """Return a file as OpenAI's SDKs read it."""
    answer = FileAnswer(
        id=file.id,
        bytes=file.size,
        created_at=file.created_at // SECOND_US,
        filename=services.engine.files.name_of(file),
        purpose=file.purpose,
    )
    if file.expires_at is not None:
        answer.expires_at = file.expires_at // SECOND_US
    return answer


def _show_upload(services: Services, upload: FileRow, file: FileRow | None = None) -> UploadAnswer:
    expires_at = upload.expires_at or 0
    expired = upload.state == PENDING and expires_at <= services.clock.now_us()
    return UploadAnswer(
        id=upload.id,
        bytes=upload.size,
        created_at=upload.created_at // SECOND_US,
        expires_at=expires_at // SECOND_US,
        filename=services.engine.files.name_of(upload),
        purpose=upload.purpose,
        status="expired" if expired else upload.state,  # type: ignore[arg-type]
        file=None if file is None else show(services, file),
    )


OPERATIONS = (
    Operation("POST", "/v1/files", create, body="form",
              about=About("Upload a file", TAG, form=FORM_FIELDS, answer=FileAnswer)),
    Operation("GET", "/v1/files", list_files,
              about=About("List files", TAG, query=FileQuery, answer=FileListAnswer)),
    Operation("GET", "/v1/files/<file_id>", retrieve, about=About("Show a file", TAG, answer=FileAnswer)),
    Operation("DELETE", "/v1/files/<file_id>", delete, about=About("Delete a file", TAG, answer=FileDeletedAnswer)),
    Operation("GET", "/v1/files/<file_id>/content", content,
              about=About("Download a file", TAG, answer=stored_files.CONTENT, media=stored_files.OCTETS,
                          headers=(stored_files.RANGE,),
                          success=(200, 206), errors=(416,))),
    Operation("POST", "/v1/uploads", begin_upload, body="json",
              about=About("Begin an upload in parts", TAG, request=UploadBody, answer=UploadAnswer)),
    Operation("POST", "/v1/uploads/<upload_id>/parts", add_part, body="form",
              about=About("Upload a part", TAG, form=PART_FIELDS, answer=UploadPartAnswer)),
    Operation("POST", "/v1/uploads/<upload_id>/complete", complete_upload, body="json",
              about=About("Complete an upload", TAG, request=UploadCompletion, answer=UploadAnswer)),
    Operation("POST", "/v1/uploads/<upload_id>/cancel", cancel_upload,
              about=About("Cancel an upload", TAG, answer=UploadAnswer)),
)  # fmt: skip
