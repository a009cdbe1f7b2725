"""`/projects/…/jobs`: batches, batches of messages, runs, videos and background responses of a project in one list,
with their progress, cost, errors by line and downloads."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from msgspec import structs

from gateway.accounts.projects import ProjectInfo
from gateway.callers.permissions import Permission
from gateway.errors import NotFound, RangeNotSatisfiable
from gateway.surfaces.bodies.stored_files import OCTETS, RANGE
from gateway.surfaces.management import file_downloads
from gateway.surfaces.management.access_groups import AccessGroup, Values, describe, in_project
from gateway.surfaces.management.batch_routes import BatchOfProviderAnswer, BatchProblemAnswer
from gateway.surfaces.management.managed_operation import ListPageQuery, ManagedCall, managed
from gateway.surfaces.visitors.project_jobs import (
    KINDS,
    OF_LINES,
    RESPONSE,
    RUN,
    VIDEO,
    ProjectJob,
    batch_of,
    cancel_job,
    check_owned,
    find_job,
    list_jobs,
)
from gateway.surfaces.visitors.validation_schemas import Body, OneOf, QueryInteger, TextField
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.answer_structs import Answer, Time, Usd
from gateway.surfaces.web.http import Operation, Outbound
from gateway.videos.content_proxy import RANGED
from gateway.worker.services import Services

TAG = "Jobs of a project"
MAX_LISTED = 200  # of a page without a limit
MAX_ERRORS = 200
RESULTS, ERRORS, INPUT = "results", "errors", "input"
CONTENTS = (RESULTS, ERRORS, INPUT)
FILE_KINDS = {RESULTS: "output", ERRORS: "errors", INPUT: "input"}
IN_PLAYGROUND = "The answers of a run on logged requests are in the playground, beside the logged ones."
NO_CONTENT = "This job has no {} to download."
DONE = ("completed", "incomplete")


class JobsQuery(ListPageQuery):
    kind = OneOf(KINDS, about="Only jobs of this kind.")


class ErrorsQuery(Body):
    cursor = TextField(1, 40, about="`next` of the previous page.")
    limit = QueryInteger(1, MAX_ERRORS, load_default=50, about="Maximum number of errors.")


class JobContentQuery(Body):
    content = OneOf(CONTENTS, load_default=RESULTS, about="What to download.")


class JobAnswer(Answer, kw_only=True):
    """A job of a project. `total` lines have `done` results, of which `failed` are errors; a video and a response are
    one. `progress` is a percentage. `cost` is null until it is known, `bound`, the most that all lines can cost, null
    where nothing is reserved for the whole. `provider_batches` serve lines at the price of their provider's batch
    API."""

    columns = ("id", "kind", "status", "done", "total", "failed", "cost")
    id: str
    kind: str
    api_key_id: str
    status: str
    endpoint: str
    model: str | None
    total: int
    done: int
    failed: int
    progress: int
    cost: Usd | None
    bound: Usd | None
    created_at: Time
    expires_at: Time | None
    ended_at: Time | None
    cancelable: bool
    problems: list[BatchProblemAnswer]
    provider_batches: list[BatchOfProviderAnswer]


class JobContentAnswer(Answer):
    """What can be downloaded of a job; `bytes` is null where the size is not known before."""

    content: str
    bytes: int | None


class JobDetailsAnswer(JobAnswer, kw_only=True):
    """A job with what can be downloaded of it now."""

    downloads: list[JobContentAnswer]


class LineErrorAnswer(Answer):
    """The error of a line: its number from 1 and its `custom_id`, both null where they are not known, and the HTTP
    status of its answer, null for a line that was not sent."""

    columns = ("line", "custom_id", "status", "code", "message")
    line: int | None
    custom_id: str | None
    status: int | None
    code: str
    message: str


class ErrorPageAnswer(Answer):
    """A page of errors; `next` is the `cursor` of the following one, null at the end. A page reads a bounded part of
    the results, so it may be short, or empty, and still have a `next`."""

    errors: list[LineErrorAnswer]
    next: str | None


class JobOfProject(NamedTuple):
    """A job that the visitor may use, and its project."""

    job: ProjectJob
    project: ProjectInfo


def of_job(permission: Permission) -> AccessGroup[JobOfProject]:
    """Return the group for a job of the project that the request names: of the visitor's own key, or of any key."""

    def find(visitor: Visitor, values: Values) -> JobOfProject:
        project = visitor.project(values["project_id"], permission)
        job = find_job(visitor.services, project.id, values["job_id"])
        check_owned(visitor, permission, project.organization_id, project.id, job.api_key)
        return JobOfProject(job, project)

    return AccessGroup(permission, describe(permission), find)


def list_all(call: ManagedCall[ProjectInfo]) -> list[JobAnswer]:
    """List batches, batches of messages, runs on logged requests, videos and background responses of a project, newest
    first, with their progress and cost. Without `limit` the newest 200 are listed, and `next` shows that there are
    more."""
    services, project_id, kind = call.services, call.subject.id, call.fields.get("kind", "")
    jobs = call.page.read(lambda asked: list_jobs(services, project_id, kind, asked.after, asked.limit), MAX_LISTED)
    return [JobAnswer(**_members_of(job)) for job in jobs]


def show(call: ManagedCall[ProjectInfo]) -> JobDetailsAnswer:
    """Show a job, with what can be downloaded of it."""
    job = find_job(call.services, call.subject.id, call.params["job_id"])
    return JobDetailsAnswer(**_members_of(job), downloads=_downloads_of(call.services, job))


def cancel(call: ManagedCall[JobOfProject]) -> JobAnswer:
    """Cancel a job: requests under way end and are billed, and no further one is sent. A batch that was cancelled
    before is returned unchanged. A video can be cancelled where its provider supports that."""
    job, project = call.subject
    cancel_job(call.services, job)
    file_downloads.note(call, "job.cancel", job.id, project.organization_id, project.id)
    return JobAnswer(**_members_of(find_job(call.services, project.id, job.id)))


def list_errors(call: ManagedCall[JobOfProject]) -> ErrorPageAnswer:
    """List the errors of the lines of a batch, in the order of the lines; those that are known while it runs, too."""
    job = call.subject.job
    if job.kind == RUN:
        raise NotFound(IN_PLAYGROUND)
    batches = call.services.engine.batches
    page = batches.errors(batch_of(call.services, job), call.fields.get("cursor", ""), call.fields["limit"])
    errors = [
        LineErrorAnswer(one.line, one.custom_id or None, one.status or None, one.code, one.message)
        for one in page.errors
    ]
    return ErrorPageAnswer(errors, page.following or None)


def download(call: ManagedCall[JobOfProject]) -> Outbound:
    """Download the results, the errors or the input of a batch, the video of a video job, or the object of a background
    response. It is always an attachment of the type `application/octet-stream`."""
    job, project = call.subject
    content = call.fields["content"]
    name, open_content = _find_content(call, job, content)
    entry = ("job.download", job.id, project.organization_id, project.id)
    write_entry = partial(file_downloads.note, call, *entry, content=content)
    return file_downloads.send(call, project.organization_id, name, open_content, write_entry)


def _find_content(call: ManagedCall[JobOfProject], job: ProjectJob, content: str) -> tuple[str, Callable[[], Outbound]]:
    """Return the name of a download, and a function that opens it. NotFound."""
    services = call.services
    if job.kind == RUN:
        raise NotFound(IN_PLAYGROUND)
    if job.kind in OF_LINES:
        file = services.engine.batches.file_of(batch_of(services, job), content)
        if file is None:
            raise NotFound(NO_CONTENT.format(content), code="job_file_deleted")
        return f"{job.id}_{FILE_KINDS[content]}.jsonl", file_downloads.file_opener(call, file)
    if content != RESULTS:
        raise NotFound(NO_CONTENT.format(content))
    if job.kind == VIDEO:
        return f"{job.id}.mp4", partial(_open_video, call, job)
    return f"{job.id}.json", partial(_open_response, services, job)


def _open_video(call: ManagedCall[JobOfProject], job: ProjectJob) -> Outbound:
    videos = call.services.engine.videos
    row = videos.jobs.find(job.id)
    if row is None:
        raise NotFound(NO_CONTENT.format(RESULTS))
    ranged = {name: value for name in RANGED if (value := call.inbound.header(name))}
    video = videos.content(row, ranged)
    if video.status == RangeNotSatisfiable.status:
        _close(video.pieces)
        raise RangeNotSatisfiable("The requested range is outside of the video.", param="range")
    return Outbound(video.status, [(name.title(), value) for name, value in video.headers.items()], video.pieces)


def _open_response(services: Services, job: ProjectJob) -> Outbound:
    jobs = services.engine.response_jobs
    row = jobs.rows.find(job.id)
    if row is None or not row.has_ended:
        raise NotFound(NO_CONTENT.format(RESULTS))
    return Outbound(200, [], jobs.object_of(row))


def _close(pieces: Iterator[bytes]) -> None:
    close = getattr(pieces, "close", None)
    if close is not None:
        close()


def _downloads_of(services: Services, job: ProjectJob) -> list[JobContentAnswer]:
    if job.kind == RUN:
        return []
    if job.kind in OF_LINES:
        row = batch_of(services, job)
        files = [(content, services.engine.batches.file_of(row, content)) for content in CONTENTS]
        return [JobContentAnswer(content, file.size) for content, file in files if file is not None]
    if job.kind == RESPONSE:
        return [JobContentAnswer(RESULTS, None)] if job.ended_at is not None else []
    return [JobContentAnswer(RESULTS, None)] if job.status in DONE else []


def _members_of(job: ProjectJob) -> dict[str, Any]:
    problems = [BatchProblemAnswer(error.code, error.message, error.line) for error in job.problems]
    parts = [BatchOfProviderAnswer.of_row(part) for part in job.parts]
    shown = JobAnswer.of(
        job,
        api_key_id=job.api_key,
        model=job.model or None,
        created_at=job.created_at,
        expires_at=job.expires_at,
        ended_at=job.ended_at,
        cost=job.cost_nusd,
        bound=job.bound_nusd,
        cancelable=job.is_cancelable,
        problems=problems,
        provider_batches=parts,
    )
    return structs.asdict(shown)


JOBS = "/projects/<project_id>/jobs"
JOB = f"{JOBS}/<job_id>"
OPERATIONS: tuple[Operation, ...] = (
    managed("GET", JOBS, list_all, "List the jobs of a project", tag=TAG,
            who=in_project("projects:read"), scope="projects:read", query=JobsQuery, inside="jobs",
            commands=("project-jobs list <project_id> --kind=kind",)),
    managed("GET", JOB, show, "Show a job of a project", tag=TAG,
            who=in_project("projects:read"), scope="projects:read", inside="job",
            commands=("project-jobs show <project_id> <job_id>",)),
    managed("POST", f"{JOB}/cancel", cancel, "Cancel a job of a project", tag=TAG,
            who=of_job("jobs:write"), scope="projects:write", inside="job", audit="job.cancel",
            commands=("project-jobs cancel <project_id> <job_id>",)),
    managed("GET", f"{JOB}/errors", list_errors, "List the errors of the lines of a job", tag=TAG,
            who=of_job("logs:read"), scope="logs:read", query=ErrorsQuery),
    managed("GET", f"{JOB}/content", download, "Download the results, errors or input of a job", tag=TAG,
            who=of_job("logs:read"), scope="logs:read", query=JobContentQuery, audit="job.download", errors=(429,),
            ranged=RANGE, media=OCTETS,
            commands=("project-jobs download <project_id> <job_id> --content=content",)),
)  # fmt: skip
