"""`/projects/…/batches`: batches of a project with their progress and cost, and their cancellation."""

from collections.abc import Iterable

from gateway.accounts import audit
from gateway.accounts.projects import ProjectInfo
from gateway.batches.batch_table import CANCELED, CANCELING, BatchJob
from gateway.batches.native_rows import ProviderBatchRow
from gateway.errors import NotFound
from gateway.surfaces.management.access_groups import in_project
from gateway.surfaces.management.managed_operation import ListPageQuery, ManagedCall, managed
from gateway.surfaces.web.answer_structs import Answer, Time, Usd
from gateway.surfaces.web.http import Operation

TAG = "Batches of a project"
MAX_LISTED = 500  # of a page without a limit
NO_BATCH = "There is no batch with this id in this project."


class BatchProblemAnswer(Answer):
    """Why a batch failed; `line` is the number of a line of its file, from 1, or null for the whole batch."""

    code: str
    message: str
    line: int | None


class BatchOfProviderAnswer(Answer):
    """The batch of a provider that serves lines of a batch: its id there, "" before it is known, its status in the
    provider's words, and the counts that the provider reports."""

    id: str
    provider: str
    model: str
    status: str
    total: int
    succeeded: int
    failed: int

    @classmethod
    def of_row(cls, part: ProviderBatchRow) -> "BatchOfProviderAnswer":
        """Return a provider's batch."""
        return cls(part.remote, part.provider, part.model, part.word, part.total, part.succeeded, part.failed)


class ProjectBatchAnswer(Answer):
    """A batch. `total` lines have `done` results, of which `failed` are errors. `bound` is the most that all lines can
    cost. `provider_batches` serve lines at the price of their provider's batch API."""

    columns = ("id", "status", "done", "total", "failed", "cost")
    id: str
    api_key_id: str
    status: str
    endpoint: str
    total: int
    done: int
    failed: int
    cost: Usd
    bound: Usd
    created_at: Time
    expires_at: Time
    ended_at: Time | None
    problems: list[BatchProblemAnswer]
    provider_batches: list[BatchOfProviderAnswer]


def list_batches(call: ManagedCall[ProjectInfo]) -> list[ProjectBatchAnswer]:
    """List the batches of a project, newest first, with their progress and cost. Without `limit` the newest 500 are
    listed, and `next` shows that there are more."""
    batches = call.services.engine.batches
    project_id = call.subject.id
    rows = call.page.read(lambda asked: batches.of_project(project_id, asked.after, asked.limit), MAX_LISTED)
    parts = batches.parts_of(rows)
    return [show(job, parts.get(job.id, ())) for job in rows]


def show_batch(call: ManagedCall[ProjectInfo]) -> ProjectBatchAnswer:
    """Show a batch with the errors of its lines."""
    return _show(call, _find(call))


def cancel_batch(call: ManagedCall[ProjectInfo]) -> ProjectBatchAnswer:
    """Cancel a batch: requests under way end and are billed, and no further one is sent. One that was cancelled before
    is returned unchanged."""
    job = _find(call)
    if job.state not in (CANCELING, CANCELED):
        job = call.services.engine.batches.cancel_job(lambda: _find(call))
    database = call.database

    def note() -> None:
        audit.append(
            "batch.cancel",
            job.id,
            actor=call.actor,
            at_us=call.services.clock.now_us(),
            organization_id=call.subject.organization_id,
            detail={"project": call.subject.id},
        )

    database.write(note)
    return _show(call, job)


def _show(call: ManagedCall[ProjectInfo], job: BatchJob) -> ProjectBatchAnswer:
    return show(job, call.services.engine.batches.parts_of([job]).get(job.id, ()))


def show(job: BatchJob, parts: Iterable[ProviderBatchRow]) -> ProjectBatchAnswer:
    """Return a batch without its contents."""
    of_providers = list(map(BatchOfProviderAnswer.of_row, parts))
    problems = [BatchProblemAnswer(error.code, error.message, error.line) for error in job.ended.errors]
    return ProjectBatchAnswer.of(
        job,
        api_key_id=job.api_key,
        status=job.state,
        cost=job.cost_nusd,
        bound=job.bound_nusd,
        expires_at=job.deadline_at,
        ended_at=job.completed_at,
        created_at=job.created_at,
        problems=problems,
        provider_batches=of_providers,
    )


def _find(call: ManagedCall[ProjectInfo]) -> BatchJob:
    job = call.services.engine.batches.rows.find(call.params["batch_id"])
    if job is None or job.project != call.subject.id:
        raise NotFound(NO_BATCH)
    return job


BATCHES = "/projects/<project_id>/batches"
OPERATIONS: tuple[Operation, ...] = (
    managed("GET", BATCHES, list_batches, "List the batches of a project", tag=TAG,
            who=in_project("projects:read"), scope="projects:read", query=ListPageQuery, inside="batches",
            commands=("batches list <project_id>",)),
    managed("GET", f"{BATCHES}/<batch_id>", show_batch, "Show a batch of a project", tag=TAG,
            who=in_project("projects:read"), scope="projects:read", inside="batch",
            commands=("batches show <project_id> <batch_id>",)),
    managed("POST", f"{BATCHES}/<batch_id>/cancel", cancel_batch, "Cancel a batch of a project", tag=TAG,
            who=in_project("projects:write"), scope="projects:write", inside="batch", audit="batch.cancel",
            commands=("batches cancel <project_id> <batch_id>",)),
)  # fmt: skip
