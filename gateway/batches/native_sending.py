"""Sends lines to batch APIs of providers: writes them, collects them by target, and creates the providers' batches.

The row of a provider's batch is written before its creation. After a crash, or a creation without an answer, the batch
is looked for at the provider before its lines are sent again.
"""

import logging
import threading
from collections.abc import Iterator

from gateway import ids
from gateway.batches.input_lines import InputLine
from gateway.batches.line_port import WrittenLine
from gateway.batches.native_parts import MAX_REASON, MAX_TROUBLE_S, SETTLED_S, NativeBatch, is_final
from gateway.batches.native_rows import (
    CREATING,
    FAILED,
    REFUSED,
    SPOILT,
    WORKING,
    ProviderBatchRow,
    ProviderBatchRows,
    SentNumber,
)
from gateway.billing.batch_reservation import AUTO, NATIVE, CollectedLine
from gateway.clock import SECOND_US
from gateway.errors import GatewayError, InvalidRequest, NotSupported, UpstreamRefused
from gateway.guardrails.guarded_texts import BLOCKED
from gateway.providers.batches.batch_codec import BatchLot, ProviderBatch
from gateway.providers.protocol import Target
from gateway.runtime.large_files import StoredFile
from gateway.runtime.threads import Job, compute_if, pause, work_for

PREFIX = "part"
RETRIED = frozenset((408, 429, 500, 502, 503, 504, 529))
MAX_WAIT_S = 60.0
MAX_CREATIONS = 6  # that fail in succession, within about 22 minutes, before a target counts as without a batch API
PART_S = 15.0  # a batch of a provider is created so long after its first line: a crash before that begins it again
LARGE = 1 << 16
SEARCH_MARGIN_S = 300  # clocks of providers differ
NOT_THERE = (404, 405, 501)
NOT_TAKEN = "The batch API of the provider does not take this request; leave out batch: native."

log = logging.getLogger("gateway")


class PartBuilder:
    """Lines for one batch of a provider, in a temporary file. It is complete at the time `until`."""

    def __init__(self, target: Target, place: str, operation: str, spool_dir: str, until: float) -> None:
        self.until = until
        self.id = ids.new(PREFIX)
        self.target = target
        self.place = place
        self.operation = operation
        self.lines = StoredFile(spool_dir)
        self.numbers: list[SentNumber] = []

    def add(self, line: bytes, joint: bytes, sent: SentNumber) -> None:
        self.lines.write(joint + line if self.numbers else line)
        self.numbers.append(sent)


class NativeSending:
    """Sends the lines of one batch to batch APIs of providers."""

    def __init__(self, batch: NativeBatch) -> None:
        self._batch = batch
        self._rows: ProviderBatchRows = batch.rows
        self._calls = batch.services.lines.calls
        self._builders: dict[tuple[str, str, str], PartBuilder] = {}
        self._lock = threading.Lock()
        self._stopped = False  # a collector failed
        self._refused: frozenset[tuple[str, str]] = frozenset()
        self._failures: dict[tuple[str, str, str], int] = {}  # creations that failed, by the keys of builders
        self._credentials: dict[str, str] = {}

    def collect(self) -> None:
        """Send every line that no other batch of a provider has, and that a batch API serves. The others are left to be
        sent as requests. Unavailable."""
        batch = self._batch
        job = batch.job()
        self._rows.free_unknown(job.id)
        parts = self._rows.of_batch(job.id)
        self._refused = frozenset(_place_of(target) for part in parts if (target := self._spoilt(part)) is not None)
        if self._rows.assigned(job.id, diverted=True) >= job.total:
            return
        self._failures = {_key_of(part): part.misses + 1 for part in parts if part.state == FAILED}
        known = batch.results.numbers(job.id) | self._rows.numbers(job.id, diverted=True)
        lines = (line for line in batch.lines() if line.number not in known)
        taking = threading.Lock()
        collectors = [Job(self._collect_some, lines, taking) for _ in range(batch.parallel)]
        try:
            self._wait_for(collectors)
            while self._builders and batch.may_go():
                self._submit(self._builders.popitem()[1])
        finally:
            for builder in self._builders.values():
                builder.lines.close()
            self._builders = {}
            if batch.task.up_to_limit:
                batch.funds.trim()

    def settle(self, part: ProviderBatchRow) -> ProviderBatchRow | None:
        """Look for a batch that may have been created although the call failed. Return its row, None where that is
        deleted. The lines of a batch that the provider does not have are free."""
        batch = self._batch
        target = batch.target_of(part)
        if target is None:
            self._rows.delete(part)
            return None
        since = part.created_at // SECOND_US - SEARCH_MARGIN_S
        found: list[ProviderBatch] = []
        try:
            found = self._calls.find(part.id, part.total, since, target)
        except GatewayError as error:
            if not is_final(error):
                return batch.put_off(part, error)
        for one in found:
            if one.named or not self._rows.is_known(one.ident, part.id):
                return self._created(part, one)
        if part.reason and part.misses + 1 >= MAX_CREATIONS:
            return self.refuse(part, part.reason, target)
        self._delete_upload(part, target)
        if not part.reason:  # the worker died before the call, or during it
            self._rows.delete(part)
            return None
        self._rows.free(part.id)
        return self._rows.change(part, state=FAILED, word=FAILED, ended_at=batch.clock.now_us())

    def _spoilt(self, part: ProviderBatchRow) -> Target | None:
        """Return the target of a part that shows that its lines are better sent as requests; None for others."""
        if self._batch.mode != AUTO or part.state not in SPOILT:
            return None
        return self._batch.target_of(part)

    # Lines.

    def _wait_for(self, collectors: list[Job[None]]) -> None:
        """Wait for all collectors: none may continue beside the next run of the batch. Raise the error of one."""
        failed: BaseException | None = None
        for collector in collectors:
            try:
                collector.result()
            except Exception as error:
                failed = error
        if failed is not None:
            raise failed

    def _collect_some(self, lines: Iterator[InputLine], taking: threading.Lock) -> None:
        work_for(self._batch.job().organization)
        while self._batch.may_go() and not self._stopped:
            with taking:
                line = next(lines, None)
            if line is None:
                return
            try:
                self._collect(line)
            except BaseException:
                self._stopped = True
                raise

    def _collect(self, line: InputLine) -> None:
        """Write a line for the batch API of its target, if it has one. An error is left to the request that follows."""
        batch = self._batch
        while batch.may_go():
            sent = CollectedLine(
                batch.funds, batch.mode, self._refused, self._credentials, grows=batch.task.up_to_limit
            )
            try:
                written = batch.port.collect(batch.job(), batch.task, line, sent)
            except GatewayError as error:
                if error.status not in RETRIED:
                    self._leave(line, error)
                    return
                pause(min(error.retry_after or 1.0, MAX_WAIT_S))
                continue
            if written is None or not self._add(line, written, sent):
                self._leave(line, None)
            return

    def _leave(self, line: InputLine, error: GatewayError | None) -> None:
        """Leave a line to the requests, which may answer with its error, or give it an error where the batch has
        none. A guardrail has noted what it found by now: the request would note it again."""
        if self._batch.mode == NATIVE or (error is not None and error.code == BLOCKED):
            self._batch.write_error(line, error or InvalidRequest(NOT_TAKEN, param="model", code="no_batch_api"))

    def _add(self, line: InputLine, written: WrittenLine, sent: CollectedLine) -> bool:
        """Add a line to the lines of its target. False where its batch API has no place for it."""
        call, target = written.call, written.target
        codec = self._calls.codec_of(target)
        place = codec.place_of(call, target) if codec is not None else ""
        if codec is None or not place:
            return False
        key = (target.mapping.key, target.credential.ident, place)
        clock = self._batch.clock
        with self._lock:
            builder = self._builders.get(key)
            if builder is None:
                builder = PartBuilder(
                    target, place, written.operation, self._batch.services.spool_dir, clock.monotonic() + PART_S
                )
                self._builders[key] = builder
        name = f"{builder.id}-{line.number}"
        wire = compute_if(len(call.body) > LARGE, codec.write_line, name, call, target)
        full: PartBuilder | None = None
        with self._lock:
            current = self._builders.get(key)
            if current is not builder:  # it was full meanwhile, and is sent under its own name
                retry = True
            else:
                retry = False
                if builder.numbers and (
                    len(builder.lines) + len(wire) >= codec.max_bytes
                    or len(builder.numbers) >= codec.max_lines
                    or clock.monotonic() >= builder.until
                ):
                    full = self._builders.pop(key)
                    retry = True
                else:
                    sent.keep()
                    builder.add(wire, codec.joint, SentNumber(line.number, sent.hold))
        if full is not None:
            self._submit(full)
        return self._add(line, written, sent) if retry else True

    # Providers' batches.

    def _submit(self, builder: PartBuilder) -> None:
        """Create the provider's batch of collected lines."""
        batch = self._batch
        target = builder.target
        now = batch.clock.now_us()
        part = ProviderBatchRow(
            id=builder.id,
            batch=batch.job().id,
            organization=batch.job().organization,
            mapping=target.mapping.key,
            source=target.credential.source,
            credential=target.credential.ident,
            place=builder.place,
            operation=builder.operation,
            state=CREATING,
            remote="",
            upload="",
            files="",
            word=CREATING,
            total=len(builder.numbers),
            succeeded=0,
            failed=0,
            polls=0,
            misses=self._failures.get((target.mapping.key, target.credential.ident, builder.place), 0),
            created_at=now,
            next_at=batch.later(SETTLED_S),
            ended_at=None,
            reason="",
            verified=True,
        )
        try:
            self._rows.insert(part, builder.numbers)
            self._create(part, BatchLot(part.id, builder.place, part.total, builder.lines), target)
        finally:
            builder.lines.close()

    def _create(self, part: ProviderBatchRow, lot: BatchLot, target: Target) -> None:
        batch = self._batch
        own = batch.target_of(part) or target  # with its credential, which targets of lines do not need
        try:
            upload = self._calls.upload(lot, own)
            if upload:
                part = self._rows.change(part, upload=upload, next_at=batch.later(SETTLED_S))
                lot = BatchLot(lot.name, lot.place, lot.count, lot.lines, upload)
            if not batch.may_go():
                return
            made = self._calls.create(lot, own)
        except GatewayError as error:
            log.warning("a batch of %s could not be created: %s", part.provider, error.message)
            if error.upstream_status in NOT_THERE:
                batch.services.lines.planner.note_absence(own)
            if is_final(error) or isinstance(error, UpstreamRefused | NotSupported):
                self.refuse(part, error.message, own)
            else:
                wait_s = min(SETTLED_S * 2**part.misses, MAX_TROUBLE_S)
                self._rows.change(part, next_at=batch.later(wait_s), reason=error.message[:MAX_REASON])
            return
        self._created(part, made)

    def _created(self, part: ProviderBatchRow, made: ProviderBatch) -> ProviderBatchRow:
        return self._rows.change(
            part,
            state=WORKING,
            remote=made.ident,
            word=made.word,
            polls=0,
            misses=0,
            next_at=self._batch.later(0),
            verified=made.named,
        )

    def refuse(self, part: ProviderBatchRow, reason: str, target: Target | None) -> ProviderBatchRow:
        """End a part that the provider did not take; its lines are free."""
        if target is not None:
            self._delete_upload(part, target)
        self._batch.end_unfinished(part, self._batch.left_of(part), reason)
        self._rows.free(part.id)
        now = self._batch.clock.now_us()
        return self._rows.change(part, state=REFUSED, word=REFUSED, ended_at=now, reason=reason[:MAX_REASON])

    def _delete_upload(self, part: ProviderBatchRow, target: Target) -> None:
        if not part.upload:
            return
        try:
            self._calls.delete(part.remote, part.upload, (), target)
        except GatewayError as error:
            log.warning("a file of a batch remains at %s until it expires: %s", part.provider, error.message)


def _key_of(part: ProviderBatchRow) -> tuple[str, str, str]:
    return part.mapping, part.credential, part.place


def _place_of(target: Target) -> tuple[str, str]:
    return target.address, target.credential.ident
