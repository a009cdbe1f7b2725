"""/v1/files in the format of Anthropic, for requests with its version header."""

from functools import partial
from typing import Literal

from gateway.files.file_rows import FileRow
from gateway.files.project_files import NewFile
from gateway.surfaces.bodies import stored_files
from gateway.surfaces.visitors.validation_schemas import Body, QueryInteger, TextField, read_query
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.answer_structs import ModelApiAnswer, Time, fill_page
from gateway.surfaces.web.forms import FILE, read_form
from gateway.surfaces.web.http import About, HeaderParameter, Inbound, Operation, Outbound
from gateway.worker.services import Services

TAG = "Files"
PURPOSE = "user_data"
VERSION_HEADER = "anthropic-version"
MAX_PAGE_SIZE = 1000
LIFETIME_FIELD = "expires_in_seconds"
MAX_LIFETIME_S = 366 * 86_400


class MessageFileAnswer(ModelApiAnswer, kw_only=True):
    """Anthropic's file metadata."""

    id: str
    type: Literal["file"] = "file"
    filename: str
    mime_type: str
    size_bytes: int
    created_at: Time
    expires_at: Time | None
    downloadable: bool = True


class MessageFileListAnswer(ModelApiAnswer, kw_only=True):
    data: list[MessageFileAnswer]
    has_more: bool
    first_id: str | None = None
    last_id: str | None = None
    next_page: str | None = None


class MessageFileDeletedAnswer(ModelApiAnswer, kw_only=True):
    id: str
    type: Literal["file_deleted"] = "file_deleted"


class MessageFileQuery(Body):
    after_id = TextField(1, 80)
    before_id = TextField(1, 80)
    page = TextField(1, 80)
    limit = QueryInteger(1, MAX_PAGE_SIZE, load_default=20)


FORM_FIELDS = {
    "type": "object",
    "required": ["file"],
    "properties": {
        "file": FILE,
        LIFETIME_FIELD: {"type": "integer", "minimum": stored_files.MIN_LIFETIME_S, "maximum": MAX_LIFETIME_S},
    },
}


def chosen(inbound: Inbound) -> bool:
    """Return whether a request expects the format of Anthropic."""
    return VERSION_HEADER in inbound.headers


def create(services: Services, inbound: Inbound) -> Outbound:
    """Store a file, for a source with the type `file` in messages."""
    caller = auth_module.caller_of(services, inbound)
    form = read_form(inbound, stored_files.limits_of(services), services.settings.spool_dir)
    file = stored_files.file_of(form, "file")
    kind = stored_files.media_type_of(file.content_type, file.filename)
    lifetime_s = stored_files.lifetime_of(form, LIFETIME_FIELD, LIFETIME_FIELD, MAX_LIFETIME_S)
    new = NewFile(file.filename, kind, PURPOSE, lifetime_s)
    stored = services.engine.files.create(caller, new, len(file.data), file.data.pieces())
    return http_responses_module.json_reply(_show(services, stored), inbound.shown_id)


def list_files(services: Services, inbound: Inbound) -> Outbound:
    """List the files of the key's project, the newest first."""
    caller = auth_module.caller_of(services, inbound)
    given = read_query(MessageFileQuery, inbound)
    limit = given["limit"]
    before = given.get("before_id", "")
    after = before or given.get("after_id", "") or given.get("page", "")
    rows = services.engine.files.page(caller, after, limit + 1, newest_first=not before)
    shown = rows[:limit][::-1] if before else rows[:limit]
    page = MessageFileListAnswer(data=[], has_more=len(rows) > limit)
    fill_page(page, shown, partial(_show, services))
    page.next_page = page.last_id if page.has_more and not before else None
    return http_responses_module.json_reply(page, inbound.shown_id)


def retrieve(services: Services, inbound: Inbound) -> Outbound:
    """Show a file."""
    return http_responses_module.json_reply(_show(services, stored_files.find(services, inbound)), inbound.shown_id)


def delete(services: Services, inbound: Inbound) -> Outbound:
    """Delete a file."""
    ident = inbound.params["file_id"]
    services.engine.files.delete(auth_module.caller_of(services, inbound), ident)
    return http_responses_module.json_reply(MessageFileDeletedAnswer(id=ident), inbound.shown_id)


def content(services: Services, inbound: Inbound) -> Outbound:
    """Download the content of a file."""
    return stored_files.send(services, inbound, stored_files.find(services, inbound))


def _show(services: Services, file: FileRow) -> MessageFileAnswer:
    return MessageFileAnswer.of(
        file,
        filename=services.engine.files.name_of(file),
        mime_type=file.media_type,
        size_bytes=file.size,
        created_at=file.created_at,
        expires_at=file.expires_at,
    )


VERSION = HeaderParameter(
    VERSION_HEADER,
    "The version of the Anthropic API; with it the answer has the format of Anthropic.",
    required=True,
    example="2023-06-01",
)
HEADERS = (VERSION,)
OPERATIONS = (
    Operation("POST", "/v1/files", create, body="form", chosen=chosen,
              about=About("Upload a file (Anthropic dialect)", TAG, form=FORM_FIELDS, answer=MessageFileAnswer,
                          headers=HEADERS)),
    Operation("GET", "/v1/files", list_files, chosen=chosen,
              about=About("List files (Anthropic dialect)", TAG, query=MessageFileQuery,
                          answer=MessageFileListAnswer, headers=HEADERS)),
    Operation("GET", "/v1/files/<file_id>", retrieve, chosen=chosen,
              about=About("Show a file (Anthropic dialect)", TAG, answer=MessageFileAnswer, headers=HEADERS)),
    Operation("DELETE", "/v1/files/<file_id>", delete, chosen=chosen,
              about=About("Delete a file (Anthropic dialect)", TAG, answer=MessageFileDeletedAnswer,
                          headers=HEADERS)),
    Operation("GET", "/v1/files/<file_id>/content", content, chosen=chosen,
              about=About("Download a file (Anthropic dialect)", TAG, answer=stored_files.CONTENT,
                          media=stored_files.OCTETS, headers=(*HEADERS, stored_files.RANGE), success=(200, 206),
                          errors=(416,))),
)  # fmt: skip
