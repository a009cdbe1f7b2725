"""Responses in the background: one worker makes them, with or without a connected caller, and any worker reads them.

The events of the stream are rows, written a few times a second. A response is a job: the worker that makes it renews
its row, and where that worker died before it began, another one makes the response. After it began, its end is lost,
and the response fails.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from msgspec import json

from gateway.callers.authentication import Caller, response_scope
from gateway.callers.vault import Vault
from gateway.clock import DAY_US, SECOND_US, Clock
from gateway.errors import GatewayError, InvalidRequest, Overloaded, Unavailable
from gateway.jobs.job_rows import CALLBACK_TABLE, JobRows, JobTransitions
from gateway.jobs.rounds import StoreClock
from gateway.jobs.sent_responses import ResponseCall, SentResponses
from gateway.metering.payload_table import LARGE, pack_off_loop, unpack_off_loop
from gateway.runtime.byte_budget import ByteBudget, HeldBytes
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.runtime.threads import compute_if, holding, pause, spawn, work_for
from gateway.store.database import Database

TABLE = "response_job"
QUEUED = "queued"
IN_PROGRESS = "in_progress"
COMPLETED = "completed"
INCOMPLETE = "incomplete"
FAILED = "failed"
CANCELED = "cancelled"
FINAL = frozenset((COMPLETED, INCOMPLETE, FAILED, CANCELED))
TRANSITIONS = JobTransitions(
    "background response",
    {
        (QUEUED, "begin"): IN_PROGRESS,
        **{(state, "cancel"): CANCELED for state in (QUEUED, IN_PROGRESS)},
        **{(IN_PROGRESS, end): end for end in (COMPLETED, INCOMPLETE, FAILED)},
        (QUEUED, FAILED): FAILED,
    },
)
CLAIM_US = 60 * SECOND_US  # a worker that is silent for this long has lost its response
FLUSH_S = 0.1
END_TRIES, END_WAIT_S = 30, 2.0  # of the end of a response while the store is down
POLL_S = 0.1
MAX_POLL_S = 1.0
HEARTBEAT_S = 15.0
MAX_READ_S = 3600.0
KEEP_DAYS = 30
KEEP_EVENTS_US = DAY_US  # after the end
MAX_RUNNING = 200  # of an organization
SHARE = 4  # bytes in memory for each byte of a request that another worker left
PAGE_EVENTS = 50
DELETED_EVENTS = 500  # rows that one transaction deletes
EVENT = b"event: "
END = b"\n\n"
HEARTBEAT = b": keep-alive\n\n"
TERMINAL = tuple(f"event: response.{state}".encode() for state in (COMPLETED, INCOMPLETE, FAILED))

log = logging.getLogger("gateway")


class ResponseJob(NamedTuple):
    """A row of `response_job`, in the order of its columns. `request` is what another worker needs to make the
    response, sealed; `response` is the response object, sealed. `sent` is what a provider was sent (SentResponse), ""
    unless a provider may make it in its background mode."""

    id: str
    organization: str
    project: str
    state: str
    created_at: int
    completed_at: int | None
    due_at: int | None
    request: str
    response: str
    api_key: str
    sent: str = ""

    @property
    def has_ended(self) -> bool:
        return self.state in FINAL


class ResponseMaker(NamedTuple):
    """The surface of responses: `open` begins the stream of a request (an exception of the gateway where it was
    refused), `fail` returns the object and the last frame of a response that failed, with its sequence number, `read`
    the object in a frame, and `forget` deletes the stored parts of a response."""

    open: Callable[["ResponseJob", bytes, "ResponseCall"], Iterator[bytes]]
    fail: Callable[[bytes, GatewayError | None, int], tuple[bytes, bytes]]
    read: Callable[[bytes], bytes]
    forget: Callable[[str], None]


class ResponseJobs:
    """The background responses of a worker; `running` are those that it makes. `maker` is set when the surfaces are
    there."""

    def __init__(
        self, database: Database, vault: Vault, clock: Clock, memory: ByteBudget, calls: SentResponses
    ) -> None:
        self._database = database
        self._memory = memory
        self.calls = calls
        self._vault = vault
        self._clock = StoreClock(database, clock)
        self.rows: JobRows[ResponseJob] = JobRows(
            database, ResponseJob, TABLE, CALLBACK_TABLE, unread=("request", "response")
        )
        self.running: set[str] = set()
        self.maker: ResponseMaker | None = None

    def begin(self, caller: Caller, ident: str, request: bytes, response: bytes) -> ResponseJob:
        """Insert a response and begin to make it. InvalidRequest (too_many_background_responses), Unavailable."""
        now = self._clock.now_us()
        job = ResponseJob(
            id=ident,
            organization=caller.organization_id,
            project=caller.project_id,
            state=QUEUED,
            created_at=now,
            completed_at=None,
            due_at=now + CLAIM_US,
            request=self._seal(request),
            response=self._seal(response),
            api_key=caller.key_id,
        )

        def insert() -> None:
            if self.rows.count_unended(job.organization) >= MAX_RUNNING:
                raise InvalidRequest(
                    f"The organization has {MAX_RUNNING} background responses in progress, which is the limit.",
                    code="too_many_background_responses",
                )
            for statement, values in self.rows.insert_rows(job):
                self._database.execute(statement.sql, values)

        self._database.write(insert)
        spawn(self._make, job)
        return job

    def find(self, caller: Caller, ident: str) -> ResponseJob | None:
        """Return a background response that the caller may see. Unavailable."""
        job = self.rows.find(ident)
        if job is None or job.project != caller.project_id:
            return None
        if job.api_key != caller.key_id:
            kind = self._kind_of(job.api_key)
            own = response_scope(caller.project_id, caller.key_id, caller.key_kind)
            if not kind or response_scope(job.project, job.api_key, kind) != own:
                return None
        return job

    def _kind_of(self, key_id: str) -> str:
        """Return the kind of a key, "" for a deleted one."""
        rows = self._database.query_rows("SELECT kind FROM api_key WHERE id = ?", (key_id,))
        return str(rows[0][0]) if rows else ""

    def object_of(self, job: ResponseJob) -> bytes:
        """Return the response object as JSON."""
        return self._open(job.response)

    def cancel(self, job: ResponseJob, response: bytes) -> ResponseJob | None:
        """End a response with this object; None when it was changed meanwhile. Its worker stops the provider's call
        within a moment, and bills what it used. Unavailable."""
        return self._end(job, "cancel", response)

    def cancel_job(self, job: ResponseJob) -> ResponseJob:
        """Cancel a response, if it has not ended, and return it; see `cancel`."""
        while not job.has_ended:
            response = json.decode(self.object_of(job)) | {"status": CANCELED}
            changed = self.cancel(job, json.encode(response)) or self.rows.find(job.id)
            if changed is None:
                break
            job = changed
        return job

    def delete(self, ident: str) -> None:
        """Delete a response with its events. Unavailable."""

        self._delete_events("job = ?", ident)
        self._database.write(partial(self.rows.delete, ident))

    def events(self, ident: str, after: int) -> Iterator[bytes]:
        """Yield the frames with numbers above `after`, until the response ends; comments while there are none."""
        wait_s = POLL_S
        silent_s = 0.0
        begun = self._clock.monotonic()
        while self._clock.monotonic() - begun < MAX_READ_S:
            has_ended = self._has_ended(ident)  # before its events, so that none is missed
            frames, after = self._read_events(ident, after)
            if frames:
                wait_s, silent_s = POLL_S, 0.0
                yield frames
                continue
            if has_ended:
                return
            pause(wait_s)
            silent_s += wait_s
            wait_s = min(wait_s * 1.5, MAX_POLL_S)
            if silent_s >= HEARTBEAT_S:
                silent_s = 0.0
                yield HEARTBEAT

    # Recurring work.

    def recover(self, should_continue: ShouldContinue = always) -> None:
        """Make responses that no worker began, and fail those that a dead worker left. Unavailable."""
        if self.maker is None:
            return
        for job in self.rows.due(self._clock.now_us(), MAX_RUNNING, MAX_RUNNING):
            if not should_continue():
                return
            if self._change(job, due_at=self._clock.now_us() + CLAIM_US) is None or job.id in self.running:
                continue
            claimed = self.rows.find(job.id)  # with its request, which may be large
            if claimed is None or claimed.has_ended:  # it was cancelled or deleted meanwhile
                continue
            if claimed.state == QUEUED or self._is_continued(claimed):
                spawn(self._make_again, claimed)
        self.calls.settle_left(self.rows.find)

    def _is_continued(self, job: ResponseJob) -> bool:
        """Return whether a response that a dead worker had begun can be read at its provider; False once it has failed,
        or while the provider does not answer."""
        sent = self.calls.read(job.sent)
        exists: bool | None = False
        if sent is not None and sent.remote:
            exists = self.calls.exists(job.id, sent, job.organization)
            if exists is None:
                return False  # this worker has claimed it for a minute
        if not exists:
            self.calls.bill_interrupted(job.id, sent)
            self._fail(job, None, self._following(job.id))
        return bool(exists)

    def purge(self, should_continue: ShouldContinue = always) -> None:
        """Delete events and responses that ended long ago. Unavailable: the next round continues."""
        now = self._clock.now_us()
        ended = "job IN (SELECT id FROM response_job WHERE completed_at < ?)"
        self._delete_events(ended, now - KEEP_EVENTS_US, should_continue)
        while should_continue() and self.rows.purge(now, KEEP_DAYS):
            continue

    # Making a response.

    def _make_again(self, job: ResponseJob) -> None:
        """Make a response that its creation did not make. Its request counts in the memory budgets like a caller's."""
        held = HeldBytes(self._memory, job.organization)
        try:
            held.grow(len(job.request) * SHARE)
            with holding(held):
                self._make(job)
        except Overloaded:
            log.warning("the background response %s waits until this worker has memory for it", job.id)
        finally:
            held.release()

    def _make(self, job: ResponseJob) -> None:
        self.running.add(job.id)
        try:
            work_for(job.organization)
            begun: ResponseJob | None = job
            if job.state == QUEUED:
                begun = self._change(job, state=TRANSITIONS[QUEUED, "begin"], due_at=self._clock.now_us() + CLAIM_US)
            if begun is not None:
                _Making(self, begun).run()
        except GatewayError as error:
            log.warning("the background response %s is not made here: %s", job.id, error.message)
        except Exception:
            log.exception("the background response %s failed", job.id)
        finally:
            self.running.discard(job.id)

    def _change(self, job: ResponseJob, **values: Any) -> ResponseJob | None:
        return self._database.write(partial(self.rows.change, job, **values))

    def _end(
        self, job: ResponseJob, event: str, response: bytes, first: int = 0, frames: bytes = b"", count: int = 0
    ) -> ResponseJob | None:
        """Write the end of a response, with its last frames."""
        sealed = self._seal(response)
        packed = self._pack(frames) if frames else b""

        def work() -> ResponseJob | None:
            now = self._clock.now_us()
            moved = self.rows.change(
                job, state=TRANSITIONS[job.state, event], completed_at=now, due_at=None, request="", response=sealed
            )
            if moved is not None and frames:
                self._insert(job.id, first, count, packed)
            return moved

        return self._database.write(work)

    def _fail(self, job: ResponseJob, error: GatewayError | None, number: int) -> None:
        if self.maker is None:
            return
        response, frame = self.maker.fail(self.object_of(job), error, number)
        self._end(job, FAILED, response, number, frame, 1)

    def _insert(self, ident: str, first: int, count: int, packed: bytes) -> None:
        sql = "INSERT INTO response_event (job, first, following, frames) VALUES (?, ?, ?, ?)"
        self._database.execute(sql, (ident, first, first + count, packed))

    def _seal(self, text: bytes) -> str:
        return compute_if(len(text) > LARGE, lambda: self._vault.seal(text.decode()))

    def _open(self, sealed: str) -> bytes:
        return compute_if(len(sealed) > LARGE, lambda: self._vault.open(sealed).encode())

    def _pack(self, frames: bytes) -> bytes:
        return pack_off_loop(self._vault, frames)

    def _has_ended(self, ident: str) -> bool:
        """Return whether a response has ended or was deleted, without reading its request."""
        rows = self._database.query_rows(f"SELECT state FROM {TABLE} WHERE id = ?", (ident,))
        return not rows or rows[0][0] in FINAL

    def _delete_events(self, condition: str, value: Any, should_continue: ShouldContinue = always) -> None:
        """Delete the events for which a condition with this value is true, in small transactions."""
        sql = (
            "DELETE FROM response_event WHERE (job, first) IN "
            f"(SELECT job, first FROM response_event WHERE {condition} LIMIT {DELETED_EVENTS})"
        )
        while should_continue() and self._database.change_rows(sql, (value,)):
            continue

    def _following(self, ident: str) -> int:
        """Return the number of the next event."""
        sql = "SELECT COALESCE(MAX(following), 0) FROM response_event WHERE job = ?"
        return int(self._database.query_rows(sql, (ident,))[0][0])

    def _read_events(self, ident: str, after: int) -> tuple[bytes, int]:
        """Return some frames above the number `after`, and the number of the last one."""
        sql = (
            "SELECT first, following, frames FROM response_event WHERE job = ? AND following > ? "
            f"ORDER BY first LIMIT {PAGE_EVENTS}"
        )
        wanted: list[bytes] = []
        last = after
        for first, following, packed in self._database.query_rows(sql, (ident, after + 1)):
            frames = unpack_off_loop(self._vault, bytes(packed)).split(END)[:-1]
            wanted += [frame + END for frame in frames[max(0, after + 1 - first) :]]
            last = following - 1
        return b"".join(wanted), last


class _Making:
    """One response while this worker makes it: its frames are written together, a few times a second."""

    def __init__(self, jobs: ResponseJobs, job: ResponseJob) -> None:
        self._jobs = jobs
        self._job = job
        self._waiting: list[bytes] = []
        self._number = 0  # of the first frame that waits
        self._skipped = 0  # frames that another worker has written
        self._flushed = self._claimed_at = jobs._clock.monotonic()
        self._is_lost = False
        self.call = ResponseCall(jobs.calls, job.id, job.organization, job.created_at, self._is_claimed)

    def run(self) -> None:
        """Make the response to its end, until it is canceled, or until another worker has it. Unavailable."""
        jobs = self._jobs
        if jobs.maker is None:
            return
        request = jobs._open(self._job.request)
        sent = jobs.calls.read(self._job.sent)
        if sent is not None:
            self._number = self._skipped = jobs._following(self._job.id)
            self.call.resume(sent)
        try:
            pieces = jobs.maker.open(self._job, request, self.call)
        except GatewayError as error:
            self.call.end()
            jobs._fail(self._job, error, self._number)
            return
        try:
            last = self._take_all(pieces)
        finally:
            close = getattr(pieces, "close", None)
            if close is not None:
                close()
        if last is None:
            if self._is_claimed():
                self.call.end()
            return
        self._conclude(last, jobs.maker)
        self.call.end()

    def _is_claimed(self) -> bool:
        """Return whether no other worker can have the response: one that was cancelled or deleted, no other one
        makes."""
        return not self._is_lost and self._jobs._clock.monotonic() - self._claimed_at < CLAIM_US / SECOND_US

    def _take_all(self, pieces: Iterator[bytes]) -> bytes | None:
        """Write the frames of the stream and return the last one; None when the response is not this worker's any
        more."""
        last = b""
        for piece in pieces:
            for frame in piece.split(END):
                if frame.startswith(EVENT):
                    last = frame
                    if self._skipped:
                        self._skipped -= 1
                    else:
                        self._waiting.append(frame + END)
            # After the last frame only the settlement is missing, which is complete with the end of the stream.
            if not last.startswith(TERMINAL) and not self._flush():
                return None
        return last

    def _conclude(self, last: bytes, maker: ResponseMaker) -> None:
        """Write the end of the response, for which this waits until the store is back."""
        jobs = self._jobs
        for left in reversed(range(END_TRIES)):
            try:
                if last.startswith(TERMINAL):
                    state = last.partition(b"\n")[0].removeprefix(b"event: response.").decode()
                    frames = b"".join(self._waiting)
                    ended = jobs._end(self._job, state, maker.read(last), self._number, frames, len(self._waiting))
                    if ended is None and jobs.rows.find(self._job.id) is None:
                        maker.forget(self._job.id)  # it was deleted while its end was stored
                elif self._flush(now=True):
                    jobs._fail(self._job, None, self._number)
                return
            except Unavailable:
                if not left:
                    raise
                pause(END_WAIT_S)

    def _flush(self, now: bool = False) -> bool:
        """Write the frames that wait; False when the response is not this worker's any more."""
        jobs = self._jobs
        moment = jobs._clock.monotonic()
        if not now and moment - self._flushed < FLUSH_S:
            return True
        self._flushed = moment
        frames, count, first = b"".join(self._waiting), len(self._waiting), self._number
        packed = jobs._pack(frames) if frames else b""

        def work() -> ResponseJob | None:
            moved = jobs.rows.change(self._job, due_at=jobs._clock.now_us() + CLAIM_US)
            if moved is not None and count:
                jobs._insert(self._job.id, first, count, packed)
            return moved

        try:
            moved = jobs._database.write(work)
            if moved is None:
                left = jobs.rows.find(self._job.id)
                self._is_lost = left is not None and left.state != CANCELED
                return False
        except Unavailable:
            return True  # the frames wait until the store is back
        self._claimed_at = moment
        self._job = moved
        self._waiting.clear()
        self._number += count
        return True
