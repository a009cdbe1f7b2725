"""Runs batches: a worker claims one, checks its lines, sends them in spare capacity and writes the files at the end."""

import logging
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from msgspec import json

from gateway import ids
from gateway.batches.batch_table import (
    CANCELED,
    CANCELING,
    COMPLETED,
    EXPIRED,
    FAILED,
    FINALIZING,
    FIRST_ERROR,
    IN_PROGRESS,
    TRANSITIONS,
    VALIDATING,
    BatchError,
    BatchJob,
    BatchOutcome,
    BatchRows,
    BatchTask,
    LineRow,
    LineRows,
)
from gateway.batches.input_lines import InputLine, read_lines
from gateway.batches.line_checks import check_lines
from gateway.batches.line_port import LineAnswer, LinePort, LineSending
from gateway.batches.native_parts import NativeBatch, NativeServices, mode_of
from gateway.batches.native_results import NativeResults
from gateway.batches.native_rows import ProviderBatchRows
from gateway.batches.native_sending import NativeSending
from gateway.billing.batch_reservation import NATIVE, BatchFunds, SentLine, hold_batch, release_batch
from gateway.clock import DAY_US, SECOND_US, Clock
from gateway.configuration.settings import BatchSettings
from gateway.errors import BudgetInUse, GatewayError, OutOfCredits, SpendingLimitReached, Unavailable
from gateway.files.content_store import ContentLost
from gateway.files.project_files import BATCH_OUTPUT, FileOwner, Files, NewFile
from gateway.jobs.job_endings import JobEnd, JobEndings
from gateway.limits.holds import Holds
from gateway.money import format_usd
from gateway.runtime.loop_turns import ShouldContinue, low_priority_turn
from gateway.runtime.threads import Job, pause, work_for

CLAIM_US = 30 * SECOND_US  # a worker that is silent for this long has lost its batch; a dead one at once
RENEW_S = 5.0
MARGIN_S = 10.0  # before the end of a claim, the worker sends and records nothing more
RETRIED = frozenset((408, 429, 500, 502, 503, 504, 529))
MAX_TRIES = 20  # of a line; with the waits between them, an outage of a provider may last more than an hour
FIRST_WAIT_S = 1.0
MAX_WAIT_S = 300.0
STEP_S = 0.2
TROUBLE_WAIT_S = 10.0  # before a batch continues that this worker could not continue
JSONL = "application/jsonl"
TOO_LARGE = (
    "The batch may cost up to {} USD, which must be available before it begins. {} Send fewer lines, or let it run up "
    "to the limit (the header X-LLMGateway-Up-To-Limit: true)."
)

INPUT_LOST = "The input of the batch was lost, so it cannot be continued."

log = logging.getLogger("gateway")


class InputLost(Unavailable):
    """The input of a batch was deleted."""


class RunParts:
    """The objects that all runs of a worker share."""

    def __init__(
        self,
        rows: BatchRows,
        lines: LineRows,
        holds: Holds,
        files: Files,
        endings: JobEndings[BatchJob],
        clock: Clock,
        settings: BatchSettings,
        max_line_bytes: int,
        native: NativeServices,
    ) -> None:
        self.native = native
        self.native_rows = ProviderBatchRows(rows.database)
        self.rows = rows
        self.lines = lines
        self.holds = holds
        self.files = files
        self.endings = endings
        self.clock = clock
        self.settings = settings
        self.max_line_bytes = max_line_bytes


class BatchClaim:
    """A batch that this worker claimed. `job` is its row; `lost`: another worker has it, or it has ended."""

    def __init__(self, rows: BatchRows, job: BatchJob, clock: Clock) -> None:
        self._rows = rows
        self._clock = clock
        self._lock = threading.Lock()
        self._until = clock.monotonic() + CLAIM_US / SECOND_US - MARGIN_S
        self.job = job
        self.lost = False

    def is_held(self) -> bool:
        """Return whether this worker certainly has the batch."""
        return not self.lost and self._clock.monotonic() < self._until

    def move(self, **values: Any) -> bool:
        """Change the row and renew the claim. False when the row was changed meanwhile: by a cancellation, which `job`
        shows then, or by another worker, which has it (`lost`). Unavailable."""
        with self._lock:
            if self.lost or self.job.has_ended:
                return False
            begun = self._clock.monotonic()
            due_at = self._clock.now_us() + CLAIM_US
            job = self.job
            moved = self._rows.database.write(lambda: self._rows.claim(job, due_at, **values))
            if moved is not None:
                self.job = moved
                self._until = begun + CLAIM_US / SECOND_US - MARGIN_S
                return True
            stored = self._rows.find(job.id)
            if stored is None or stored.due_at != job.due_at:
                self.lost = True
            else:
                self.job = stored
            return False

    def release(self, wait_s: float = 0.0) -> None:
        """Let another worker continue, at once or after a while. Unavailable."""
        with self._lock:
            job = self.job
            if not self.lost and not job.has_ended:
                due_at = self._clock.now_us() + round(wait_s * SECOND_US)
                self._rows.database.write(lambda: self._rows.change(job, due_at=due_at))
            self.lost = True


class BatchRun:
    """One batch while this worker has it."""

    def __init__(self, parts: RunParts, port: LinePort, job: BatchJob, should_continue: ShouldContinue) -> None:
        self._parts = parts
        self._clock = parts.clock
        self._port = port
        self._claim = BatchClaim(parts.rows, job, parts.clock)
        self._task: BatchTask = parts.rows.task_of(job)
        self._may_continue = should_continue
        self._funds = BatchFunds(parts.holds, job.id, self._claim.is_held)
        self._running = True
        self._next = threading.Lock()
        self._paused_until = 0.0
        self._failures = 0
        self._troubled = False
        self._wait_s = 0.0  # until this batch has something to do
        native = self._open_native()
        self._sending = NativeSending(native)
        self._results = NativeResults(native, self._sending)

    def run(self) -> None:
        """Continue the batch to its end, until another worker has it, or until this worker stops. Unavailable."""
        work_for(self._job.organization)
        renewal = Job(self._renew)
        try:
            try:
                self._run()
            except InputLost:
                self._give_up()
            except ContentLost:
                # Another node may have the content, as long as the batch may run.
                if not self._has_expired():
                    raise
                self._give_up()
            self._running = False
            if not self._claim.job.has_ended:
                self._claim.release(TROUBLE_WAIT_S if self._troubled else self._wait_s)
        except GatewayError:
            self._running = False
            renewal.result()
            self._claim.release(TROUBLE_WAIT_S)
            raise
        finally:
            self._running = False
            self._claim.lost = True
            renewal.result()

    @property
    def claimed(self) -> BatchJob:
        """Return the row that this worker claimed last."""
        return self._claim.job

    @property
    def _job(self) -> BatchJob:
        return self._claim.job

    def _run(self) -> None:
        if self._job.state == VALIDATING:
            self._check()
        if self._job.state == IN_PROGRESS and self._may_send():
            self._send_lines()
        while self._job.state == IN_PROGRESS and self._is_done():
            self._claim.move(state=TRANSITIONS[IN_PROGRESS, "done"], **self._sums())
        if self._claim.lost or not self._may_continue():
            return
        if self._job.state == FINALIZING:
            self._finish(COMPLETED)
        elif self._job.state == CANCELING or self._has_expired():
            wait_s = self._results.advance(ends=True)
            if wait_s is not None:
                self._wait_s = wait_s
            elif self._may_continue() and not self._claim.lost:
                self._finish(CANCELED if self._job.state == CANCELING else EXPIRED)

    def _send_lines(self) -> None:
        """Send what is left to batch APIs of providers or as requests, and read what these batches have answered."""
        if self._mode:
            self._sending.collect()
        # Up to a limit, requests would wait for what the lines at providers hold.
        if self._mode != NATIVE and not (self._task.up_to_limit and self._results.is_open()):
            self._send_all()
        wait_s = self._results.advance()
        if wait_s is not None:
            self._wait_s = wait_s
            self._claim.move(**self._sums())

    def _open_native(self) -> NativeBatch:
        parts = self._parts
        return NativeBatch(
            services=parts.native,
            rows=parts.native_rows,
            results=parts.lines,
            port=self._port,
            task=self._task,
            funds=self._funds,
            clock=self._clock,
            mode=self._mode,
            parallel=parts.settings.parallel_lines,
            job=lambda: self._job,
            lines=self._lines,
            may_go=lambda: self._running and self._claim.is_held() and self._may_continue(),
            is_held=self._claim.is_held,
        )

    @property
    def _mode(self) -> str:
        return mode_of(self._task, self._parts.settings)

    # Before the first line.

    def _check(self) -> None:
        """Check all lines and hold their highest cost; the batch fails otherwise."""
        checked = check_lines(self._port, self._job, self._task, self._lines(), self._parts.settings.max_lines)
        errors = tuple(checked.errors)
        if not errors and not self._task.up_to_limit:
            errors = hold_all(self._parts.holds, self._job.id, checked.bounds)
        if errors:
            release_batch(self._parts.holds, self._job.id)
            outcome = BatchOutcome(errors=errors)
            while not self._claim.lost and self._job.state == VALIDATING:
                self._end(FAILED, outcome, total=checked.total)
            return
        values = {"total": checked.total, "bound_nusd": checked.bound_nusd}
        while not self._claim.lost and self._job.state == VALIDATING:
            started_at = self._clock.now_us()
            self._claim.move(state=TRANSITIONS[VALIDATING, "valid"], started_at=started_at, **values)

    # The lines.

    def _send_all(self) -> None:
        if self._parts.native_rows.assigned(self._job.id, diverted=False) >= self._job.total:
            return
        known = self._parts.lines.numbers(self._job.id) | self._parts.native_rows.numbers(self._job.id, diverted=False)
        lines = (line for line in self._lines() if line.number not in known)
        senders = [Job(self._send_some, lines) for _ in range(self._parts.settings.parallel_lines)]
        for sender in senders:
            sender.result()

    def _send_some(self, lines: Iterator[InputLine]) -> None:
        """Send one line after the other until none is left; several greenlets do this."""
        work_for(self._job.organization)
        while self._may_send():
            with self._next:
                line = next(lines, None)
            if line is None:
                return
            try:
                self._send(line)
            except GatewayError as error:
                log.warning("line %d of the batch %s will be sent again: %s", line.number, self._job.id, error.message)
                self._claim.lost = self._claim.lost or not self._claim.is_held()
                self._running, self._troubled = False, True
            except Exception:
                log.exception("line %d of the batch %s failed", line.number, self._job.id)
                self._running, self._troubled = False, True

    def _send(self, line: InputLine) -> None:
        job = self._job
        for number in range(1, MAX_TRIES + 1):
            while self._clock.monotonic() < self._paused_until and self._may_send():
                pause(STEP_S)
            if not self._may_send():
                return
            request_id = ids.new_hex()
            reservation = SentLine(None if self._task.up_to_limit else self._funds)
            write = partial(self._parts.lines.row, job.id, line.number, request_id)
            sending = LineSending(request_id, reservation, self._claim.is_held, write)
            answer = self._port.send(job, self._task, line, sending)
            if answer.recorded:
                self._failures = 0
                reservation.end(answer.cost_nusd)
                return
            if not self._claim.is_held():
                return
            if answer.status not in RETRIED or number == MAX_TRIES:
                self._parts.lines.insert(write(answer.status, answer.body, 0))
                reservation.end(0)
                return
            self._back_off(answer)

    def _back_off(self, answer: LineAnswer) -> None:
        """Send no line for a while after an answer that says to try again, longer each time. Lines that were under way
        at the same time count as one."""
        now = self._clock.monotonic()
        if now < self._paused_until:
            return
        self._failures += 1
        wait_s = min(FIRST_WAIT_S * 2 ** min(self._failures - 1, 10), MAX_WAIT_S)
        self._paused_until = now + max(wait_s, min(answer.retry_after_s, MAX_WAIT_S))

    def _may_send(self) -> bool:
        return (
            self._running
            and self._claim.is_held()
            and self._job.state == IN_PROGRESS
            and self._may_continue()
            and not self._has_expired()
        )

    def _has_expired(self) -> bool:
        return self._clock.now_us() >= self._job.deadline_at

    def _is_done(self) -> bool:
        if self._claim.lost:
            return False
        return self._parts.lines.sums(self._job.id).done >= self._job.total

    # While it runs.

    def _renew(self) -> None:
        """Renew the claim, publish the progress, and return to the budgets what is not needed any more."""
        last = self._clock.monotonic()
        while self._running and not self._claim.lost:
            pause(STEP_S)
            if self._clock.monotonic() - last < RENEW_S:
                continue
            last = self._clock.monotonic()
            try:
                self._claim.move(**self._sums())
                self._funds.give_back()
            except GatewayError as error:
                log.warning("the batch %s could not be renewed: %s", self._job.id, error.message)

    def _sums(self) -> dict[str, int]:
        """Return the progress, with what providers have answered in their batches."""
        sums = self._parts.lines.sums(self._job.id)
        done, failed = self._results.progress()
        return {"done": sums.done + done, "failed": sums.failed + failed, "cost_nusd": sums.cost_nusd}

    # The end.

    def _finish(self, state: str) -> None:
        """Write the files, release the rest of the hold, and end the batch."""
        owner = FileOwner(self._job.organization, self._job.project, self._job.api_key)
        reason = {CANCELED: "cancelled", EXPIRED: "expired"}.get(state, "")
        sums = self._sums()
        left = max(0, self._job.total - sums["done"])
        outcome = BatchOutcome(
            output_file=self._write_file(owner, reason, "output"),
            error_file=self._write_file(owner, reason, "errors"),
            canceled=left if state == CANCELED else 0,
            expired=left if state == EXPIRED else 0,
        )
        release_batch(self._parts.holds, self._job.id)
        while not self._claim.lost and not self._job.has_ended:
            if self._end(state, outcome, **sums):
                clean_up(self._parts, self._job)
                return

    def _give_up(self) -> None:
        """End a batch that can neither be continued nor have files, and release its hold."""
        release_batch(self._parts.holds, self._job.id)
        sums = self._sums()
        outcome = BatchOutcome(errors=(BatchError("batch_input_lost", INPUT_LOST),))
        while not self._claim.lost and not self._job.has_ended:
            if self._end(FAILED, outcome, **sums):
                clean_up(self._parts, self._job)

    def _write_file(self, owner: FileOwner, reason: str, kind: str) -> str:
        """Write a file of results and return its id, "" for one without lines. For messages all results are in one file
        that is read through its batch alone."""
        whole = self._task.one_file
        succeeded = None if whole else kind == "output"
        if whole and kind != "output":
            return ""
        outcomes = join_results(self._lines(), self._parts.lines, self._job.id)
        pieces = write_results(self._port, self._job, self._task, self._parts.lines, outcomes, reason, succeeded)
        first = next(pieces, None)
        if first is None and not whole:
            return ""

        def written() -> Iterator[bytes]:
            if first is not None:
                yield first
                yield from pieces

        ident = file_id(self._job.id, kind)
        new = NewFile(f"{self._job.id}_{kind}.jsonl", JSONL, BATCH_OUTPUT, self._task.lifetime_s)
        until = self._clock.now_us() + (self._parts.settings.keep_days + 1) * DAY_US if whole else 0
        return self._parts.files.keep_output(owner, new, written(), ident, until).id

    def _end(self, state: str, outcome: BatchOutcome, **values: Any) -> bool:
        """End the batch; False when its row was changed meanwhile."""
        self._claim.move()
        job = self._job
        if self._claim.lost or job.has_ended:
            return False
        end = JobEnd(
            {
                "state": state,
                "completed_at": self._clock.now_us(),
                "due_at": None,
                "outcome": json.encode(outcome).decode(),
                **values,
            },
            has_callback=bool(self._task.callback_url),
        )
        ended = self._parts.endings.end(job, end)
        if ended is None:
            return False
        self._claim.job = ended
        return True

    def _lines(self) -> Iterator[InputLine]:
        return lines_of(self._parts, self._job)


def lines_of(parts: RunParts, job: BatchJob) -> Iterator[InputLine]:
    """Yield the lines of a batch. InputLost, ContentLost, Unavailable."""
    kept = parts.files.find_kept(job.input)
    if kept is None:
        raise InputLost(INPUT_LOST)
    return read_lines(parts.files.open(kept), parts.max_line_bytes)


def hold_all(holds: Holds, batch: str, bounds: dict[Any, int]) -> tuple[BatchError, ...]:
    """Hold what a batch can cost, or return why a limit has no room for it. Unavailable."""
    try:
        hold_batch(holds, batch, bounds)
    except (SpendingLimitReached, OutOfCredits, BudgetInUse) as error:
        message = TOO_LARGE.format(format_usd(sum(bounds.values())), error.message)
        return (BatchError(error.code, message),)
    return ()


def clean_up(parts: RunParts, job: BatchJob) -> None:
    """Delete the results of lines and the input of a batch that has ended. Safe to repeat. Unavailable."""
    while parts.lines.delete(job.id):
        continue
    parts.native_rows.forget_lines(job.id)
    parts.files.release(job.input)


def file_id(batch: str, kind: str) -> str:
    """Return the id of a file of results: the same whenever the files of a batch are written."""
    digits = batch.rpartition("_")[2]
    last = int(digits[-1], 16) ^ (1 if kind == "output" else 2)
    return f"file_{digits[:-1]}{last:x}"


# The files at the end of a batch: the answers of its lines in their order, and the errors.


class LineOutcome(NamedTuple):
    """A line with its result; None for a line that was not sent."""

    line: InputLine
    result: LineRow | None

    @property
    def succeeded(self) -> bool:
        return self.result is not None and self.result.status < FIRST_ERROR


def join_results(lines: Iterator[InputLine], rows: LineRows, batch: str) -> Iterator[LineOutcome]:
    """Yield each line with its result; both are read in the order of the lines."""
    results = rows.walk(batch)
    following = next(results, None)
    for line in lines:
        result = None
        if following is not None and following.number == line.number:
            result = following
            following = next(results, None)
        yield LineOutcome(line, result)


def write_results(
    port: LinePort,
    job: BatchJob,
    task: BatchTask,
    rows: LineRows,
    outcomes: Iterator[LineOutcome],
    reason: str,
    succeeded: bool | None,
) -> Iterator[bytes]:
    """Yield the lines of a file: of those that `succeeded` or did not, None: of all. `reason` is that of lines without
    a result."""
    for outcome in outcomes:
        if succeeded is not None and outcome.succeeded != succeeded:
            continue
        low_priority_turn()
        result = outcome.result
        answer = rows.open(result) if result is not None else b""
        request_id, status = (result.request, result.status) if result is not None else ("", 0)
        yield port.write_result(task, outcome.line, request_id, status, answer, "" if result else reason) + b"\n"
