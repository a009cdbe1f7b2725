"""Jobs and files of a project, as a signed-in visitor sees them: jobs of every kind in one list, and who may read and
change what belongs to a key."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from gateway.accounts import keys
from gateway.accounts.projects import ProjectInfo
from gateway.batches.batch_table import (
    CANCELED,
    CANCELING,
    IN_PROGRESS,
    MESSAGES_PREFIX,
    PREFIX,
    RUN_PREFIX,
    VALIDATING,
    BatchError,
    BatchJob,
)
from gateway.batches.native_rows import ProviderBatchRow
from gateway.callers.permissions import Permission
from gateway.errors import Conflict, NotFound
from gateway.jobs.job_rows import JobOwner
from gateway.jobs.response_jobs import ResponseJob
from gateway.metering.log.records import LoggedRequest, read_requests
from gateway.surfaces.visitors.visitor import Visitor
from gateway.videos.job_table import DECODER, RUNNING, VideoJob, is_shown
from gateway.videos.job_table import PREFIX as VIDEO_PREFIX
from gateway.worker.services import Services

BATCH = "batch"
MESSAGE_BATCH = "message_batch"
RUN = "run"
VIDEO = "video"
RESPONSE = "response"
# Kind → the beginning of its ids, which continue with the time of the creation.
PREFIXES: Mapping[str, str] = {
    BATCH: f"{PREFIX}_",
    MESSAGE_BATCH: f"{MESSAGES_PREFIX}_",
    RUN: f"{RUN_PREFIX}_",
    VIDEO: VIDEO_PREFIX,
    RESPONSE: "resp_",
}
KINDS = tuple(PREFIXES)
OF_LINES = (BATCH, MESSAGE_BATCH, RUN)
CANCELABLE = (VALIDATING, IN_PROGRESS)
SUCCEEDED, FAILED = "completed", "failed"
RESPONSES = "/v1/responses"
VIDEOS = "/v1/videos"
NO_JOB = "There is no job with this id in this project."
MAX_ID_LENGTH = 80


class ProjectJob(Struct, frozen=True):
    """A job of a project. `total` lines have `done` results, of which `failed` are errors; a video and a response are
    one. `cost_nusd` None: not known yet; `bound_nusd` None: no bound is reserved for the whole. Times are
    microseconds."""

    id: str
    kind: str
    organization: str
    project: str
    api_key: str
    status: str
    endpoint: str
    model: str
    created_at: int
    expires_at: int | None
    ended_at: int | None
    total: int
    done: int
    failed: int
    progress: int
    cost_nusd: int | None
    bound_nusd: int | None
    problems: tuple[BatchError, ...]
    parts: tuple[ProviderBatchRow, ...] = ()
    is_cancelable: bool = False


def list_jobs(services: Services, project_id: str, kind: str, after: str, limit: int) -> list[ProjectJob]:
    """Return up to `limit` jobs of a project, newest first, of one kind ("": of all), after the job `after` ("": from
    the start). Unavailable."""
    digits = after.rpartition("_")[2] or "g"
    owner = JobOwner(project_id)
    found: list[BatchJob | VideoJob | ResponseJob] = []
    for one in [kind] if kind else KINDS:
        place = PREFIXES[one] + digits
        if one in OF_LINES:
            rows = services.engine.batches.rows.page(owner, place, limit, True)
            found += [row for row in rows if row.id.startswith(PREFIXES[one])]
        elif one == VIDEO:
            found += services.engine.videos.jobs.page(owner, place, limit, True, short=True)
        else:
            found += services.engine.response_jobs.rows.page(owner, place, limit, True, short=True)
    found.sort(key=lambda row: row.id.rpartition("_")[2], reverse=True)
    return _show_all(services, found[:limit])


def find_job(services: Services, project_id: str, ident: str) -> ProjectJob:
    """Return a job of a project. NotFound, Unavailable."""
    row = _find_row(services, ident)
    if row is None or row.project != project_id:
        raise NotFound(NO_JOB)
    return _show_all(services, [row])[0]


def _find_row(services: Services, ident: str) -> BatchJob | VideoJob | ResponseJob | None:
    kind = kind_of(ident)
    if len(ident) > MAX_ID_LENGTH or not kind:
        return None
    if kind in OF_LINES:
        return services.engine.batches.rows.find(ident)
    if kind == RESPONSE:
        return services.engine.response_jobs.rows.find(ident)
    job = services.engine.videos.jobs.find(ident)
    return job if job is not None and is_shown(job) else None


def kind_of(ident: str) -> str:
    """Return the kind of a job by its id, "" for another id."""
    return next((kind for kind, prefix in PREFIXES.items() if ident.startswith(prefix)), "")


def cancel_job(services: Services, job: ProjectJob) -> None:
    """Cancel a job, unless it was cancelled before. Conflict for one that has ended or cannot be cancelled,
    NotFound, errors of upstream calls, Unavailable."""
    row = _find_row(services, job.id)
    if row is None:
        raise NotFound(NO_JOB)
    if isinstance(row, BatchJob):
        if row.state not in (CANCELING, CANCELED):
            services.engine.batches.cancel_job(partial(_find_batch, services, job.id))
        return
    if row.has_ended:
        raise Conflict(f"The {job.kind} is {job.status} and cannot be cancelled.", code="job_ended")
    if isinstance(row, VideoJob):
        services.engine.videos.cancel_job(row)
    else:
        services.engine.response_jobs.cancel_job(row)


def _find_batch(services: Services, ident: str) -> BatchJob:
    row = services.engine.batches.rows.find(ident)
    if row is None:
        raise NotFound(NO_JOB)
    return row


def batch_of(services: Services, job: ProjectJob) -> BatchJob:
    """Return the row of a batch. NotFound for a job of another kind."""
    if job.kind not in OF_LINES:
        raise NotFound("This job has no lines.")
    return _find_batch(services, job.id)


def _show_all(services: Services, rows: Sequence[BatchJob | VideoJob | ResponseJob]) -> list[ProjectJob]:
    batches = [row for row in rows if isinstance(row, BatchJob)]
    parts = services.engine.batches.parts_of(batches) if batches else {}
    logged = _read_log(services, [row.id.rpartition("_")[2] for row in rows if isinstance(row, ResponseJob)])
    shown = []
    for row in rows:
        if isinstance(row, BatchJob):
            shown.append(_of_batch(row, parts.get(row.id, ())))
        elif isinstance(row, VideoJob):
            shown.append(_of_video(row))
        else:
            shown.append(_of_response(row, logged.get(row.id.rpartition("_")[2])))
    return shown


def _read_log(services: Services, idents: Iterable[str]) -> dict[str, LoggedRequest]:
    wanted = [bytes.fromhex(ident) for ident in idents]
    database = services.store.database
    return {one.request_id: one for one in database.read(partial(read_requests, database, wanted))}


def _of_batch(row: BatchJob, parts: Iterable[ProviderBatchRow]) -> ProjectJob:
    return ProjectJob(
        id=row.id,
        kind=kind_of(row.id),
        organization=row.organization,
        project=row.project,
        api_key=row.api_key,
        status=row.state,
        endpoint=row.endpoint,
        model="",
        created_at=row.created_at,
        expires_at=row.deadline_at,
        ended_at=row.completed_at,
        total=row.total,
        done=row.done,
        failed=row.failed,
        progress=row.done * 100 // row.total if row.total else 0,
        cost_nusd=row.cost_nusd,
        bound_nusd=row.bound_nusd,
        problems=row.ended.errors,
        parts=tuple(parts),
        is_cancelable=row.state in CANCELABLE,
    )


def _of_video(row: VideoJob) -> ProjectJob:
    outcome = DECODER.decode(row.outcome) if row.outcome else None
    problems: tuple[BatchError, ...] = ()
    if outcome is not None and outcome.code:
        problems = (BatchError(outcome.code, outcome.message),)
    return ProjectJob(
        **_single(row),
        kind=VIDEO,
        endpoint=VIDEOS,
        model=row.model,
        expires_at=row.expires_at,
        progress=100 if row.state == SUCCEEDED else row.progress,
        cost_nusd=outcome.cost_nusd if outcome is not None else None,
        problems=problems,
        is_cancelable=row.state in RUNNING,
    )


def _of_response(row: ResponseJob, record: LoggedRequest | None) -> ProjectJob:
    code = record.error if record is not None and row.state == FAILED else ""
    return ProjectJob(
        **_single(row),
        kind=RESPONSE,
        endpoint=RESPONSES,
        model=record.asked if record is not None else "",
        expires_at=None,
        progress=100 if row.has_ended else 0,
        cost_nusd=record.cost_nusd if record is not None else None,
        problems=(BatchError(code, f"The request failed ({code})."),) if code else (),
        is_cancelable=not row.has_ended,
    )


def _single(row: VideoJob | ResponseJob) -> dict[str, Any]:
    """Return the members of a job that is one request."""
    return {
        "id": row.id,
        "organization": row.organization,
        "project": row.project,
        "api_key": row.api_key,
        "status": row.state,
        "created_at": row.created_at,
        "ended_at": row.completed_at,
        "total": 1,
        "done": int(row.has_ended),
        "failed": int(row.state == FAILED),
        "bound_nusd": None,
    }


# Who may read and change what belongs to a key of a project.


def check_owned(visitor: Visitor, permission: Permission, organization_id: str, project_id: str, owner: str) -> None:
    """Raise Forbidden unless a permission of the visitor covers what `owner` has in a project: a key, or the member
    who stored a file in the console."""
    reach = visitor.reach(organization_id, permission)
    covered = reach.whole or project_id in reach.projects
    if not covered and reach.own:
        covered = is_own(visitor, organization_id, owner)
    visitor.check(organization_id, permission, covered)


def is_own(visitor: Visitor, organization_id: str, owner: str) -> bool:
    """Return whether a key, or a member, is the visitor's."""
    membership = visitor.memberships.get(organization_id)
    if membership is None or not owner:
        return False
    if owner == membership.id:
        return True
    try:
        key = keys.find(visitor.services.store.database, owner, deleted=True)
    except NotFound:
        return False
    return key.member_id == membership.id


def covers(visitor: Visitor, permission: Permission, project: ProjectInfo) -> Callable[[str], bool]:
    """Return a check whether a permission covers what an owner has in a project; each owner is looked up once."""
    reach = visitor.reach(project.organization_id, permission)
    whole = reach.whole or project.id in reach.projects
    known: dict[str, bool] = {}

    def check(owner: str) -> bool:
        if whole or not reach.own:
            return whole
        if owner not in known:
            known[owner] = is_own(visitor, project.organization_id, owner)
        return known[owner]

    return check
