"""`/projects/…/files`: files of a project, listed, downloaded and deleted; what those of an organization take."""

from functools import partial
from typing import NamedTuple

from gateway.accounts.projects import ProjectInfo
from gateway.callers.permissions import Permission
from gateway.files.file_rows import FileRow
from gateway.files.project_files import BATCH_OUTPUT
from gateway.jobs.job_rows import JobOwner
from gateway.surfaces.bodies.stored_files import OCTETS, RANGE
from gateway.surfaces.management import file_downloads
from gateway.surfaces.management.access_groups import AccessGroup, Values, describe, in_organization, in_project
from gateway.surfaces.management.managed_operation import ListPageQuery, ManagedCall, managed
from gateway.surfaces.visitors.project_jobs import check_owned
from gateway.surfaces.visitors.validation_schemas import OneOf
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.answer_structs import Answer, Time
from gateway.surfaces.web.http import Operation, Outbound
from gateway.worker.services import Services

TAG = "Files of a project"
MAX_LISTED = 500  # of a page without a limit
PURPOSES = ("assistants", "batch", "evals", "fine-tune", "user_data", "vision", BATCH_OUTPUT)
KEY_PREFIX = "key_"


class FilesQuery(ListPageQuery):
    purpose = OneOf(PURPOSES, about="Only files with this purpose.")


class ProjectFileAnswer(Answer):
    """A file. It was stored with an API key, or by a member in the console. `expires_at` is null for a file that is
    kept until it is deleted."""

    columns = ("id", "filename", "purpose", "bytes", "expires_at")
    id: str
    filename: str
    purpose: str
    media_type: str
    bytes: int
    api_key_id: str | None
    member_id: str | None
    created_at: Time
    expires_at: Time | None


class FileUsageAnswer(Answer):
    """Files of an organization. `used_bytes` counts each content once, with those of unfinished uploads and the inputs
    of batches; `limit_bytes` is the most that they may have, null without a limit, and `max_file_bytes` that of one
    file."""

    files: int
    used_bytes: int
    limit_bytes: int | None
    max_file_bytes: int


class FileOfProject(NamedTuple):
    """A file that the visitor may use, and its project."""

    file: FileRow
    project: ProjectInfo


def of_file(permission: Permission) -> AccessGroup[FileOfProject]:
    """Return the group for a file of the project that the request names: of the visitor's own key, or of any key."""

    def find(visitor: Visitor, values: Values) -> FileOfProject:
        project = visitor.project(values["project_id"], permission)
        file = visitor.services.engine.files.find_of(JobOwner(project.id), values["file_id"])
        check_owned(visitor, permission, project.organization_id, project.id, file.api_key)
        return FileOfProject(file, project)

    return AccessGroup(permission, describe(permission), find)


def list_files(call: ManagedCall[ProjectInfo]) -> list[ProjectFileAnswer]:
    """List the files of a project, newest first. Without `limit` the newest 500 are listed, and `next` shows that there
    are more."""
    files, owner = call.services.engine.files, JobOwner(call.subject.id)
    purpose = call.fields.get("purpose", "")
    rows = call.page.read(lambda asked: files.page_of(owner, asked.after, asked.limit, True, purpose), MAX_LISTED)
    return [show(call.services, row) for row in rows]


def show_file(call: ManagedCall[ProjectInfo]) -> ProjectFileAnswer:
    """Show a file of a project."""
    return show(call.services, call.services.engine.files.find_of(JobOwner(call.subject.id), call.params["file_id"]))


def download_file(call: ManagedCall[FileOfProject]) -> Outbound:
    """Download the content of a file, complete or in the byte range of the Range header. It is always an attachment of
    the type `application/octet-stream`."""
    file, project = call.subject
    name = call.services.engine.files.name_of(file) or file.id
    write_entry = partial(file_downloads.note, call, "file.download", file.id, project.organization_id, project.id)
    opener = file_downloads.file_opener(call, file)
    return file_downloads.send(call, project.organization_id, name, opener, write_entry)


def delete_file(call: ManagedCall[FileOfProject]) -> None:
    """Delete a file. A batch that was created with it continues."""
    file, project = call.subject
    call.services.engine.files.delete_of(JobOwner(project.id), file.id)
    file_downloads.note(call, "file.delete", file.id, project.organization_id, project.id, purpose=file.purpose)


def show_usage(call: ManagedCall[str]) -> FileUsageAnswer:
    """Show what the files of an organization take of their quota."""
    room = call.services.engine.files.room_of(call.subject)
    return FileUsageAnswer(room.files, room.used, room.limit or None, room.largest)


def show(services: Services, file: FileRow) -> ProjectFileAnswer:
    """Return a file without its content."""
    stored_with_key = file.api_key.startswith(KEY_PREFIX)
    return ProjectFileAnswer.of(
        file,
        filename=services.engine.files.name_of(file),
        bytes=file.size,
        api_key_id=file.api_key if stored_with_key else None,
        member_id=None if stored_with_key else file.api_key or None,
        created_at=file.created_at,
        expires_at=file.expires_at,
    )


FILES = "/projects/<project_id>/files"
OPERATIONS: tuple[Operation, ...] = (
    managed("GET", FILES, list_files, "List the files of a project", tag=TAG,
            who=in_project("projects:read"), scope="projects:read", query=FilesQuery, inside="files",
            commands=("files list <project_id> --purpose=purpose",)),
    managed("GET", f"{FILES}/<file_id>", show_file, "Show a file of a project", tag=TAG,
            who=in_project("projects:read"), scope="projects:read", inside="file",
            commands=("files show <project_id> <file_id>",)),
    managed("GET", f"{FILES}/<file_id>/content", download_file, "Download a file of a project", tag=TAG,
            who=of_file("logs:read"), scope="logs:read", audit="file.download", errors=(429,), ranged=RANGE,
            media=OCTETS, commands=("files download <project_id> <file_id>",)),
    managed("DELETE", f"{FILES}/<file_id>", delete_file, "Delete a file of a project", tag=TAG,
            who=of_file("jobs:write"), scope="projects:write", audit="file.delete", message="The file was deleted.",
            commands=("files delete <project_id> <file_id>",)),
    managed("GET", "/orgs/<organization_id>/file-usage", show_usage, "Show what the files of an organization take",
            tag=TAG, who=in_organization("projects:read"), scope="projects:read", inside="usage",
            commands=("files usage",)),
)  # fmt: skip
