"""Follows batches at providers: polls their states, reads their results, and ends what expired, was cancelled or lost.

Results come in any order and may be large. They are downloaded to a temporary file (`result_index`), and then delivered
in the order of the lines, each as the response of its request. A crash at any moment only repeats the download: lines
with a result are skipped.
"""

import logging
import threading
from collections.abc import Iterator, Mapping
from functools import partial

from gateway import ids
from gateway.batches.input_lines import InputLine
from gateway.batches.line_port import LineSending
from gateway.batches.native_billing import bill_unread
from gateway.batches.native_parts import FIRST_POLL_S, MAX_POLL_S, POLL_GROWTH, NativeBatch, is_final
from gateway.batches.native_rows import CLOSED, CREATING, LOST, READING, WORKING, ProviderBatchRow
from gateway.batches.native_sending import RETRIED, NativeSending
from gateway.batches.result_index import ForeignResults, ResultIndex, download
from gateway.billing.batch_reservation import DeliveredLine
from gateway.clock import HOUR_US, SECOND_US
from gateway.engine.batch_lines import LineReply
from gateway.errors import GatewayError, NotFound, Unavailable, UpstreamFailed
from gateway.providers.batches.batch_codec import ENDED, NOT_RUN
from gateway.providers.batches.batch_codec import REFUSED as PROVIDER_REFUSED
from gateway.providers.protocol import Target
from gateway.runtime.threads import Job, work_for

CANCELED_HERE = "cancelled"  # the reason of a part that was cancelled at its provider
MAX_LOST = 2  # batches for a provider that lost them, before their lines have an error
MAX_MISSES = 3  # answers in succession by which the provider does not know a batch
MAX_FAILURES = 20  # lines that cannot be delivered now, before the others wait too
GONE = (404, 410)
GIVEN_UP_US = 48 * HOUR_US  # after the end of its window, in which a provider may still end a batch
UNAVAILABLE = Unavailable.status
NOT_EXECUTED = "The provider's batch ended before this request was executed."
UNREADABLE_RESULT = "The provider's result of this request cannot be read."
LOST_BATCH = "The provider does not know the batch of this request any more."
NO_TARGET = "The model, the provider or the credential of this batch is gone."

log = logging.getLogger("gateway")


class NativeResults:
    """The batches at providers of one batch."""

    def __init__(self, batch: NativeBatch, sending: NativeSending) -> None:
        self._batch = batch
        self._rows = batch.rows
        self._sending = sending
        self._calls = batch.services.lines.calls

    def advance(self, ends: bool = False) -> float | None:
        """Poll what is due and read what has ended. Return for how many seconds nothing is due, None when no batch at a
        provider is open. `ends`: no further line is wanted, so what works is cancelled. Unavailable."""
        batch = self._batch
        ident = batch.job().id
        for part in self._rows.walk_open(ident):
            if not batch.may_go():
                return 0.0
            # One that may be another application's is not cancelled; the provider ends it.
            is_cancelable = part.state == WORKING and part.reason != CANCELED_HERE and part.verified
            if part.next_at <= batch.clock.now_us() or (ends and is_cancelable):
                self._advance(part, ends)
        waits = [part.next_at for part in self._rows.walk_open(ident)]
        if not waits:
            return None
        return max(0.0, (min(waits) - batch.clock.now_us()) / SECOND_US)

    def is_open(self) -> bool:
        """Return whether a provider has lines without results that are read."""
        return next(self._rows.walk_open(self._batch.job().id), None) is not None

    def progress(self) -> tuple[int, int]:
        """Return how many lines providers have answered, and how many of these with errors, that have no result yet."""
        done = failed = 0
        for part in self._rows.walk_open(self._batch.job().id):
            answered = part.succeeded + part.failed
            if not answered:
                continue
            left = answered - (self._rows.delivered(part.id) if part.state == READING else 0)
            done += max(0, left)
            failed += min(max(0, left), part.failed)
        return done, failed

    def _advance(self, part: ProviderBatchRow, ends: bool) -> None:
        if self._batch.clock.now_us() > self._batch.job().deadline_at + GIVEN_UP_US:
            self._lose(part)
            return
        if part.state == CREATING:
            settled = self._sending.settle(part)
            if settled is None or settled.state != WORKING:
                return
            part = settled
        target = self._batch.target_of(part)
        if target is None:
            self._fail(part, NO_TARGET)
            return
        if part.state == WORKING:
            part = self._poll(part, target, ends)
        if part.state == READING:
            self._read(part, target)

    def _poll(self, part: ProviderBatchRow, target: Target, ends: bool) -> ProviderBatchRow:
        """Return the part with the state that its provider reports."""
        batch = self._batch
        try:
            if ends and part.reason != CANCELED_HERE and part.verified:
                part = self._cancel(part, target)
            known = self._calls.status(part.remote, target)
        except GatewayError as error:
            if error.upstream_status not in GONE and not isinstance(error, NotFound):
                return batch.put_off(part, error)
            if part.misses + 1 >= MAX_MISSES:
                return self._lose(part)
            return self._rows.change(part, misses=part.misses + 1, next_at=batch.later(FIRST_POLL_S))
        if known.state == PROVIDER_REFUSED:
            return self._fail(part, known.reason or known.word)
        wait_s = min(FIRST_POLL_S * POLL_GROWTH ** min(part.polls, 20), MAX_POLL_S)
        return self._rows.change(
            part,
            state=READING if known.state == ENDED else WORKING,
            word=known.word,
            succeeded=known.succeeded,
            failed=known.failed,
            files=" ".join(known.files),
            polls=0 if known.state == ENDED else part.polls + 1,
            misses=0,
            next_at=batch.later(0 if known.state == ENDED else wait_s),
        )

    def _cancel(self, part: ProviderBatchRow, target: Target) -> ProviderBatchRow:
        """Cancel a batch at its provider, which refuses that for one that has ended."""
        try:
            self._calls.cancel(part.remote, target)
        except GatewayError as error:
            if not is_final(error):
                raise
        return self._rows.change(part, reason=CANCELED_HERE, polls=0)

    # Results.

    def _read(self, part: ProviderBatchRow, target: Target) -> None:
        """Deliver the results of an ended batch, and free its lines without any."""
        batch = self._batch
        index = ResultIndex(batch.services.spool_dir)
        try:
            holds = self._rows.lines_of(part.id)
            left = holds.keys() - batch.results.numbers(part.batch)
            download(self._calls, part, target, index, left)
            unfinished = self._deliver_all(part, target, index, {number: holds[number] for number in left})
        except ForeignResults:
            self._sending.refuse(part._replace(upload=""), "The batch was that of another application.", None)
            return
        finally:
            index.close()
        if unfinished is None:
            return
        if index.is_cut:
            batch.end_unfinished(part, [number for number in unfinished if number in index], NOT_EXECUTED)
            self._rows.change(part, next_at=batch.later(0))
            return
        if index.error is not None and index.error.upstream_status not in GONE:
            batch.put_off(part, index.error)
            return
        if index.error is not None or index.unreadable or index.strange:
            # Another download may have what this one lacks.
            if part.misses + 1 < MAX_MISSES:
                batch.put_off(part._replace(misses=part.misses + 1), index.error or UpstreamFailed(UNREADABLE_RESULT))
                return
            log.warning("results of the batch %s of %s cannot be read", part.remote, part.provider)
        unread = [number for number in unfinished if number in index.unreadable]
        batch.end_unfinished(part, unread, UNREADABLE_RESULT, code=None)
        batch.end_unfinished(part, [number for number in unfinished if number not in index.unreadable], NOT_EXECUTED)
        part = self._rows.change(part, state=CLOSED, ended_at=batch.clock.now_us())
        try:
            self._calls.delete(part.remote, part.upload, tuple(part.files.split()), target)
        except GatewayError as error:
            log.warning("files of a batch remain at %s until they expire: %s", part.provider, error.message)

    def _deliver_all(
        self, part: ProviderBatchRow, target: Target, index: ResultIndex, holds: Mapping[int, str]
    ) -> list[int] | None:
        """Deliver the results in the order of the lines. Return the numbers of lines that are not finished; None where
        this worker lost the batch meanwhile, or some lines could not be delivered now."""
        batch = self._batch
        unfinished = [number for number in holds if number not in index]
        wanted = (line for line in batch.lines() if line.number in holds and line.number in index)
        taking = threading.Lock()
        failures: list[GatewayError] = []

        def deliver_some(lines: Iterator[InputLine]) -> None:
            work_for(part.organization)
            while batch.may_go() and len(failures) < MAX_FAILURES:
                with taking:
                    line = next(lines, None)
                if line is None:
                    return
                status = index.status(line.number)
                if status == NOT_RUN or (status in RETRIED and batch.sends_again):
                    unfinished.append(line.number)
                    continue
                try:
                    self._deliver(part, target, line, LineReply(status, index.body(line.number)), holds[line.number])
                except GatewayError as error:
                    failures.append(error)

        deliverers = [Job(deliver_some, wanted) for _ in range(batch.parallel)]
        for deliverer in deliverers:
            deliverer.result()
        if not batch.may_go():
            return None
        if failures:
            batch.put_off(part, failures[0])
            return None
        return unfinished

    def _deliver(self, part: ProviderBatchRow, target: Target, line: InputLine, reply: LineReply, hold: str) -> None:
        """Record the result of a line, with its usage row."""
        batch = self._batch
        job = batch.job()
        request_id = ids.new_hex()
        reservation = DeliveredLine(batch.funds, target, reply)
        write = partial(batch.results.row, job.id, line.number, request_id)
        sending = LineSending(request_id, reservation, batch.is_held, write)
        answer = batch.port.deliver(job, batch.task, line, sending)
        if answer.recorded:
            reservation.end(answer.cost_nusd)
            return
        if not batch.is_held():
            raise Unavailable("Another worker continues this batch.")
        if answer.status == UNAVAILABLE and reply.status < 400 and batch.clock.now_us() < job.deadline_at:
            raise Unavailable("A line could not be read now.")
        if reply.status < 400:
            # Under another id: an answer that could not be read has a row without a cost already.
            bill_unread(batch, part, target, reply, hold, ids.new_hex(), write(answer.status, answer.body, 0))
            return
        batch.results.insert(write(answer.status, answer.body, 0))
        reservation.end(0)

    # Lines without a result.

    def _fail(self, part: ProviderBatchRow, reason: str) -> ProviderBatchRow:
        """End a part that its provider did not run."""
        return self._sending.refuse(part, reason, self._batch.target_of(part))

    def _lose(self, part: ProviderBatchRow) -> ProviderBatchRow:
        """End a part that its provider does not know any more. Where lines may not be sent as requests, they are sent
        in another batch, some times."""
        batch = self._batch
        log.warning("the provider %s lost the batch %s", part.provider, part.remote)
        lost = sum(one.state == LOST for one in self._rows.of_batch(part.batch))
        if batch.sends_again or lost >= MAX_LOST:
            batch.end_unfinished(part, batch.left_of(part), LOST_BATCH)
        self._rows.free(part.id)
        now = batch.clock.now_us()
        return self._rows.change(part, state=LOST, word=LOST, ended_at=now, reason=LOST_BATCH)
