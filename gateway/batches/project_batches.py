"""Batches, as the surfaces use them; running them is recurring work of every worker."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

from gateway import ids
from gateway.accounts import projects
from gateway.batches.batch_runs import (
    CLAIM_US,
    BatchRun,
    LineOutcome,
    RunParts,
    clean_up,
    hold_all,
    join_results,
    lines_of,
)
from gateway.batches.batch_table import (
    CANCELING,
    MESSAGES_PREFIX,
    PREFIX,
    RUN_PREFIX,
    TABLE,
    TRANSITIONS,
    VALIDATING,
    BatchJob,
    BatchRows,
    BatchTask,
    LineRow,
    LineRows,
)
from gateway.batches.input_lines import read_lines
from gateway.batches.line_checks import CheckedBatch, check_lines
from gateway.batches.line_errors import ErrorPage, read_errors
from gateway.batches.line_port import LinePort
from gateway.batches.native_parts import NativeServices
from gateway.batches.native_rows import ProviderBatchRow
from gateway.billing.batch_reservation import release_batch
from gateway.billing.context import billing_identity_of
from gateway.callers.authentication import Caller
from gateway.callers.vault import Vault
from gateway.clock import HOUR_US, Clock
from gateway.configuration.settings import BatchSettings
from gateway.control.version import Control
from gateway.errors import Conflict, GatewayError, InvalidRequest, NotFound, SpendingLimitReached, Unavailable
from gateway.files.file_rows import FileRow
from gateway.files.project_files import Files, check_kept
from gateway.jobs.callbacks import CallbackEvent, CallbackOptions, Callbacks, Deliveries
from gateway.jobs.job_endings import JobEndings
from gateway.jobs.job_rows import CALLBACK_TABLE, JobOwner, owner_of
from gateway.jobs.rounds import Rounds, StoreClock
from gateway.limits.cost_bound import CostBound
from gateway.limits.holds import Holds
from gateway.money import format_usd
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.store.database import Database
from gateway.store.live_workers import LiveWorkers
from gateway.transport import Transport

KINDS = (PREFIX, MESSAGES_PREFIX, RUN_PREFIX)
HIDDEN_FILES = (f"{MESSAGES_PREFIX}_", f"{RUN_PREFIX}_")  # kinds that show their results through the batch alone
UNKNOWN = "There is no batch {} in this project."
ECHOED_ID_LENGTH = 80
MAX_RETRIES = 10  # concurrent changes of a batch while it is canceled
MAX_RUNS_PER_ORGANIZATION = 2  # batches that a worker runs at the same time
MAX_RUNS = 8
LOST_AFTER_US = HOUR_US  # a batch of messages is inserted at once after its holds
KEPT_AFTER_US = 168 * HOUR_US  # after the end of its window, in which a batch writes its files
MAX_WAITING = 1000  # batches of an organization that have not ended
BOUND_ROSE = "The requests can cost up to {} USD now, which is more than before. Look at the cost again."
NO_RESULTS = "The batch is {}. Its results are available once it has ended."

log = logging.getLogger("gateway")


class Batches:
    """The batches of a worker. A batch belongs to the project of the key that requested it. `port` is set when the
    surfaces are ready."""

    def __init__(
        self,
        database: Database,
        control: Control,
        vault: Vault,
        transport: Transport,
        files: Files,
        clock: Clock,
        settings: BatchSettings,
        max_line_bytes: int,
        native: NativeServices,
        workers: LiveWorkers,
    ) -> None:
        self._database = database
        self._control = control
        self._vault = vault
        self._clock = clock = StoreClock(database, clock)
        self._settings = settings
        self._holds = Holds(database)
        self._files = files
        self.rows = BatchRows(database, vault, workers)
        self.callbacks = Callbacks(database, CALLBACK_TABLE, TABLE)
        endings = JobEndings(self.rows, self._holds, self.callbacks, clock)
        lines = LineRows(database, vault)
        self._parts = RunParts(self.rows, lines, self._holds, files, endings, clock, settings, max_line_bytes, native)
        self._left: deque[BatchJob] = deque()  # claimed batches of runs that ended early
        self._rounds = Rounds(MAX_RUNS_PER_ORGANIZATION, MAX_RUNS, clock)
        self.deliveries = Deliveries(self.callbacks, self, vault, transport, clock)
        self.port: LinePort | None = None

    def create(self, caller: Caller, endpoint: str, file: FileRow, task: BatchTask) -> BatchJob:
        """Create a batch of the lines of a file; a worker checks them afterwards. InvalidRequest, Unavailable."""
        check_kept(caller)
        kept = self._files.keep(file, self._kept_until())
        try:
            return self._insert(caller, self._draft(caller, PREFIX, endpoint, kept.id, task))
        except BaseException:
            self._files.release(kept.id)
            raise

    def measure(self, caller: Caller, endpoint: str, lines: Iterable[bytes], task: BatchTask) -> CheckedBatch:
        """Check lines as a batch would, with the most that they can cost; nothing is stored or held. InvalidRequest
        under zero data retention, Unavailable."""
        check_kept(caller)
        job = self._draft(caller, RUN_PREFIX, endpoint, "", task)
        read = read_lines(lines, self._parts.max_line_bytes)
        return check_lines(self._port(), job, task, read, self._settings.max_lines, caller)

    def create_checked(
        self,
        caller: Caller,
        endpoint: str,
        lines: Iterable[bytes],
        task: BatchTask,
        kind: str = MESSAGES_PREFIX,
        most_nusd: int | None = None,
    ) -> BatchJob:
        """Create a batch of lines that are checked and held before this returns. InvalidRequest for the first invalid
        line, Conflict (bound_rose) if they can cost more than `most_nusd`, SpendingLimitReached, Unavailable."""
        check_kept(caller)
        kept = self._files.keep_pieces(caller, lines, self._kept_until())
        job = self._draft(caller, kind, endpoint, kept.id, task)
        try:
            checked = check_lines(self._port(), job, task, lines_of(self._parts, job), self._settings.max_lines)
            if checked.errors:
                error = checked.errors[0]
                number = (error.line or 1) - 1
                param = f"requests.{number}" + (f".params.{error.param}" if error.param else "")
                raise InvalidRequest(f"requests.{number}: {error.message}", param=param, code=error.code)
            if most_nusd is not None and checked.bound_nusd > most_nusd:
                raise Conflict(BOUND_ROSE.format(format_usd(checked.bound_nusd)), code="bound_rose")
            if not task.up_to_limit:
                refusals = hold_all(self._holds, job.id, checked.bounds)
                if refusals:
                    raise SpendingLimitReached(refusals[0].message, code=refusals[0].code)
            state = TRANSITIONS[VALIDATING, "valid"]
            now = self._clock.now_us()
            return self._insert(
                caller,
                job._replace(
                    state=state, total=checked.total, bound_nusd=checked.bound_nusd, started_at=now, due_at=now
                ),
            )
        except BaseException:
            release_batch(self._holds, job.id)
            self._files.release(kept.id)
            raise

    def find(self, caller: Caller, ident: str) -> BatchJob:
        """Return a batch that the caller may see. NotFound, Unavailable."""
        job = self.rows.find(ident)
        if job is None or not owner_of(caller).owns(job):
            raise NotFound(UNKNOWN.format(ident[:ECHOED_ID_LENGTH]))
        return job

    def page(self, caller: Caller, after: str, limit: int, newest_first: bool, prefix: str) -> list[BatchJob]:
        """Return up to `limit` batches of a kind that the caller may see, after the id `after` ("": from the start)."""
        # Ids have hexadecimal digits after the prefix, so `g` sorts after all batches of a kind.
        start = f"{prefix}_g" if newest_first else f"{prefix}_"
        return self._page(owner_of(caller), after or start, limit, newest_first, prefix)

    def of_project(self, project_id: str, after: str, limit: int) -> list[BatchJob]:
        """Return up to `limit` batches of all kinds of a project, newest first, after the id `after` ("": from the
        start)."""
        digits = _digits_of(after) or "g"
        kinds = (self._page(JobOwner(project_id), f"{kind}_{digits}", limit, True, kind) for kind in KINDS)
        return sorted(chain.from_iterable(kinds), key=lambda job: _digits_of(job.id), reverse=True)[:limit]

    def runs(self, owner: JobOwner, limit: int) -> list[BatchJob]:
        """Return the newest runs of logged requests of an owner."""
        return self._page(owner, f"{RUN_PREFIX}_g", limit, True, RUN_PREFIX)

    def cancel(self, caller: Caller, ident: str) -> BatchJob:
        """Cancel a batch: no further line is sent, and what ran is billed. Conflict (batch_ended)."""
        return self.cancel_job(partial(self.find, caller, ident))

    def cancel_job(self, find: Callable[[], BatchJob]) -> BatchJob:
        """Cancel the batch that `find` returns, as `cancel` does."""
        for _ in range(MAX_RETRIES):
            job = find()
            if job.state == CANCELING:
                return job
            if (job.state, "cancel") not in TRANSITIONS:
                raise Conflict(f"The batch is {job.state} and cannot be cancelled.", code="batch_ended")
            now = self._clock.now_us()
            change = partial(self.rows.change, job, state=TRANSITIONS[job.state, "cancel"], canceled_at=now)
            changed = self._database.write(change)
            if changed is not None:
                return changed
        raise Unavailable("The batch is being changed. Try again in a moment.")

    def delete(self, caller: Caller, ident: str) -> None:
        """Delete a batch that has ended, with its hidden results. Conflict (batch_not_ended)."""
        self.delete_job(self.find(caller, ident))

    def delete_job(self, job: BatchJob) -> None:
        """Delete a batch, as `delete` does."""
        if not job.has_ended:
            raise Conflict("The batch has not ended. Cancel it first.", code="batch_not_ended")
        self._forget(job)
        self._database.write(partial(self.rows.delete, job.id))

    def results(self, job: BatchJob) -> Iterator[bytes]:
        """Return the file with all results of a batch of messages; the iterator must be closed. NotFound before the
        end."""
        file = self._files.find_kept(job.ended.output_file) if job.ended.output_file else None
        if file is None:
            raise NotFound(NO_RESULTS.format(job.state), code="batch_not_ended")
        return self._files.open(file)

    def results_so_far(self, job: BatchJob) -> Iterator[LineOutcome]:
        """Yield the lines of a batch that has not ended, each with its result. InputLost, ContentLost, Unavailable."""
        return join_results(lines_of(self._parts, job), self._parts.lines, job.id)

    def errors(self, job: BatchJob, cursor: str, limit: int) -> ErrorPage:
        """Return a page of the errors of lines, as `read_errors` does."""
        return read_errors(self._parts, self._port(), job, cursor, limit)

    def file_of(self, job: BatchJob, kind: str) -> FileRow | None:
        """Return a file of a batch while it is there: its "input", "results" or "errors". Unavailable."""
        idents = {"results": (job.ended.output_file,), "errors": (job.ended.error_file,)}
        for ident in idents.get(kind) or (self.rows.task_of(job).input_file, job.input):
            file = self._files.find_kept(ident) if ident else None
            if file is not None and file.project == job.project and file.content:
                return file
        return None

    def answer_of(self, result: LineRow) -> bytes:
        """Return the answer of a result."""
        return self._parts.lines.open(result)

    def parts_of(self, jobs: Sequence[BatchJob]) -> dict[str, list[ProviderBatchRow]]:
        """Return the batches of providers that serve lines of some batches, by the ids of these. Unavailable."""
        return self._parts.native_rows.of_batches([job.id for job in jobs])

    def event_of(self, job_id: str) -> CallbackEvent | None:
        """Return the event for the end of a batch; None when it was deleted. Unavailable."""
        job = self.rows.find(job_id)
        if job is None:
            return None
        task = self.rows.task_of(job)
        options = CallbackOptions(task.callback_url, task.callback_secret)
        at_us = job.completed_at or job.created_at
        return CallbackEvent(job.project, options, f"batch.{job.state}", at_us, self._port().show(job, task))

    # Recurring work.

    def run(self, should_continue: ShouldContinue = always) -> None:
        """Start or continue batches that no worker has. Unavailable when the store is down."""
        if self.port is None:
            return
        self._release_left()
        self.rows.end_dead_claims(self._clock.now_us())
        due = self.rows.due(self._clock.now_us(), MAX_RUNS_PER_ORGANIZATION, MAX_RUNS)
        self._rounds.run(((job.organization, partial(self._run, job, should_continue)) for job in due), should_continue)

    def purge(self, should_continue: ShouldContinue = always) -> None:
        """Delete batches that ended long ago. Unavailable: the next round continues."""
        self._release_lost_holds()
        before = self._clock.now_us() - self._settings.keep_days * 24 * HOUR_US
        sql = f"SELECT id FROM {TABLE} WHERE completed_at IS NOT NULL AND completed_at < ? LIMIT 100"
        while should_continue() and (idents := self._database.query_rows(sql, (before,))):
            for (ident,) in idents:
                job = self.rows.find(ident)
                if job is not None:
                    self._forget(job)
                    self._database.write(partial(self.rows.delete, ident))

    def _run(self, job: BatchJob, should_continue: ShouldContinue) -> None:
        try:
            now = self._clock.now_us()
            claim = partial(self.rows.claim, job, now + CLAIM_US)
            claimed = self._database.write(claim)
            if claimed is not None:
                run = BatchRun(self._parts, self._port(), claimed, should_continue)
                try:
                    run.run()
                except GatewayError:
                    self._left.append(run.claimed)
                    raise
        except GatewayError as error:
            log.warning("the batch %s will be continued: %s", job.id, error.message)
        except Exception:  # One batch must not block the others.
            log.exception("the batch %s failed", job.id)

    def _release_left(self) -> None:
        """Let batches be continued at once that could not be released because the store was down. Unavailable."""
        while self._left:
            self._database.write(partial(self.rows.change, self._left[0], due_at=self._clock.now_us()))
            self._left.popleft()

    def _release_lost_holds(self) -> None:
        """Release the holds of batches that have ended or were never inserted, because their worker died."""
        sql = "SELECT id FROM hold WHERE (id LIKE ? OR id LIKE ?) AND placed_at < ?"
        params = (f"{PREFIX}%:%", f"{MESSAGES_PREFIX}%:%", self._clock.now_us() - LOST_AFTER_US)
        for (ident,) in self._database.query_rows(sql, params):
            job = self.rows.find(ident.partition(":")[0])
            if job is None or job.has_ended:
                self._holds.release(ident)

    def _kept_until(self) -> int:
        return self._clock.now_us() + round(self._settings.window_h * HOUR_US) + KEPT_AFTER_US

    def _draft(self, caller: Caller, prefix: str, endpoint: str, kept: str, task: BatchTask) -> BatchJob:
        now = self._clock.now_us()
        return BatchJob(
            id=ids.new(prefix),
            organization=caller.organization_id,
            project=caller.project_id,
            state=VALIDATING,
            endpoint=endpoint,
            created_at=now,
            started_at=None,
            canceled_at=None,
            completed_at=None,
            due_at=now,
            deadline_at=now + round(self._settings.window_h * HOUR_US),
            total=0,
            done=0,
            failed=0,
            bound_nusd=0,
            cost_nusd=0,
            input=kept,
            task=self.rows.seal(task),
            outcome="",
            api_key=caller.key_id,
        )

    def _insert(self, caller: Caller, job: BatchJob) -> BatchJob:
        """Insert a batch, together with an empty hold that ends with it."""
        task = self.rows.task_of(job)
        if task.callback_url and not task.callback_secret:
            projects.ensure_callback_secret(
                self._database, self._control, self._vault, caller.project_id, actor=caller.user_id
            )
        payer = billing_identity_of(caller).without_credits
        check = partial(self._check_number, caller.organization_id)
        self._holds.place(job.id, payer, CostBound(0, 0, 0, True), self.rows.insert_rows(job), check=check)
        return job

    def _check_number(self, organization: str) -> None:
        if self.rows.count_unended(organization) >= MAX_WAITING:
            raise InvalidRequest(
                f"The organization has {MAX_WAITING} batches that have not ended, which is the limit.",
                code="too_many_batches",
            )

    def _page(self, owner: JobOwner, after: str, limit: int, newest_first: bool, prefix: str) -> list[BatchJob]:
        page = self.rows.page(owner, after, limit, newest_first)
        return [job for job in page if job.id.startswith(f"{prefix}_")]

    def _forget(self, job: BatchJob) -> None:
        """Delete what belongs to an ended batch alone."""
        clean_up(self._parts, job)
        self._parts.native_rows.forget(job.id)
        output = self._files.find_kept(job.ended.output_file) if job.ended.output_file else None
        if output is not None and job.id.startswith(HIDDEN_FILES):
            self._files.release(output.id)

    def _port(self) -> LinePort:
        if self.port is None:
            raise Unavailable("This worker cannot run batches yet.")
        return self.port


def _digits_of(ident: str) -> str:
    """Return the part of an id that begins with the time of its creation."""
    return ident.rpartition("_")[2]
