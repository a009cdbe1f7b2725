"""Follows batches at providers: polls their states, reads their results, and ends what expired, was cancelled or lost.

Results come in any order and may be large. They are downloaded to a temporary file, and then delivered in the order of
the lines, each as the response of its request. A crash at any moment only repeats the download: lines with a result are
skipped.
"""

import logging
import threading
from array import array
from collections.abc import Iterator, Mapping
from functools import partial

from gateway import ids
from gateway.batches.input_lines import InputLine
from gateway.batches.line_port import LineSending
from gateway.batches.native_billing import bill_unread
from gateway.batches.native_parts import FIRST_POLL_S, MAX_POLL_S, POLL_GROWTH, NativeBatch, is_final
from gateway.batches.native_rows import CLOSED, CREATING, LOST, READING, WORKING, ProviderBatchRow
from gateway.batches.native_sending import RETRIED, NativeSending
from gateway.billing.batch_reservation import DeliveredLine
from gateway.clock import HOUR_US, SECOND_US
from gateway.engine.batch_lines import LineReply
from gateway.errors import GatewayError, NotFound, Unavailable, UpstreamFailed
from gateway.providers.batches.batch_codec import ENDED, MAX_DIGITS, NOT_RUN, ProviderBatch, ResultLine
from gateway.providers.batches.batch_codec import REFUSED as PROVIDER_REFUSED
from gateway.providers.protocol import Target
from gateway.runtime.large_files import StoredFile
from gateway.runtime.threads import Job, work_for

CANCELED_HERE = "cancelled"  # the reason of a part that was cancelled at its provider
MAX_LOST = 2  # batches for a provider that lost them, before their lines have an error
MAX_MISSES = 3  # answers in succession by which the provider does not know a batch
GONE = (404, 410)
GIVEN_UP_US = 48 * HOUR_US  # after the end of its window, in which a provider may still end a batch
UNAVAILABLE = Unavailable.status
NOT_EXECUTED = "The provider's batch ended before this request was executed."
LOST_BATCH = "The provider does not know the batch of this request any more."
NO_TARGET = "The model, the provider or the credential of this batch is gone."

log = logging.getLogger("gateway")


class ForeignResults(Exception):
    """The results are those of another batch."""


class ResultIndex:
    """Results in a temporary file, found by the number of their line."""

    def __init__(self, spool_dir: str) -> None:
        self._file = StoredFile(spool_dir)
        self._places: dict[int, int] = {}
        self._starts = array("q")
        self._sizes = array("q")
        self._statuses = array("i")

    def __contains__(self, number: int) -> bool:
        return number in self._places

    def add(self, number: int, result: ResultLine) -> None:
        """Add a result; of several for one line the first counts."""
        if number in self._places:
            return
        self._places[number] = len(self._starts)
        self._starts.append(len(self._file))
        self._sizes.append(len(result.body))
        self._statuses.append(result.status)
        self._file.write(result.body)

    def status(self, number: int) -> int:
        return self._statuses[self._places[number]]

    def body(self, number: int) -> bytes:
        place = self._places[number]
        return self._file.read(self._sizes[place], self._starts[place])

    def close(self) -> None:
        self._file.close()


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
            self._download(part, target, index, holds)
            unfinished = self._deliver_all(part, target, index, holds)
        except ForeignResults:
            self._sending.refuse(part._replace(upload=""), "The batch was that of another application.", None)
            return
        except GatewayError as error:
            if isinstance(error, Unavailable) and not error.upstream_status:
                raise
            batch.put_off(part, error)
            return
        finally:
            index.close()
        if unfinished is None:
            return
        batch.end_unfinished(part, unfinished, NOT_EXECUTED)
        part = self._rows.change(part, state=CLOSED, ended_at=batch.clock.now_us())
        try:
            self._calls.delete(part.remote, part.upload, tuple(part.files.split()), target)
        except GatewayError as error:
            log.warning("files of a batch remain at %s until they expire: %s", part.provider, error.message)

    def _download(self, part: ProviderBatchRow, target: Target, index: ResultIndex, lines: Mapping[int, str]) -> None:
        """Read the results of a part's lines. ForeignResults, UpstreamFailed."""
        ended = ProviderBatch(part.remote, ENDED, part.word, files=tuple(part.files.split()))
        results = self._calls.results(ended, target)
        begin = f"{part.id}-"
        try:
            for result in results:
                name, number = result.custom_id[: len(begin)], result.custom_id[len(begin) :]
                if name != begin:
                    raise ForeignResults
                if not number.isdecimal() or len(number) > MAX_DIGITS:
                    raise UpstreamFailed("The provider named a line that it was not sent.")
                if int(number) in lines:  # not one that is sent in another way since an earlier download
                    index.add(int(number), result)
        finally:
            close = getattr(results, "close", None)
            if close is not None:
                close()

    def _deliver_all(
        self, part: ProviderBatchRow, target: Target, index: ResultIndex, holds: Mapping[int, str]
    ) -> list[int] | None:
        """Deliver the results in the order of the lines. Return the numbers of lines that are not finished; None where
        this worker lost the batch meanwhile."""
        batch = self._batch
        known = batch.results.numbers(part.batch)
        unfinished = [number for number in holds if number not in known and number not in index]
        wanted = (
            line for line in batch.lines() if line.number in holds and line.number in index and line.number not in known
        )
        taking = threading.Lock()
        failures: list[GatewayError] = []

        def deliver_some(lines: Iterator[InputLine]) -> None:
            work_for(part.organization)
            while batch.may_go() and not failures:
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
        if failures:
            raise failures[0]
        return unfinished if batch.may_go() else None

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
