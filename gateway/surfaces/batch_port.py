"""The lines of batches as requests: each is checked and sent by the operation of its path, like those of callers."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from gateway.batches.batch_table import BatchJob, BatchTask
from gateway.batches.input_lines import InputLine
from gateway.batches.line_port import LineAnswer, LineBound, LineError, LineSending, WrittenLine
from gateway.batches.line_results import LineResult
from gateway.batches.native_parts import mode_of
from gateway.billing.batch_reservation import CollectedLine, LineMeasured, MeasuredLine
from gateway.billing.context import RequestContext
from gateway.callers.authentication import Caller
from gateway.engine.batch_lines import LineWritten, NotBatched
from gateway.engine.payload_collection import Payload
from gateway.errors import GatewayError, NotFound, NotSupported, Overloaded
from gateway.files.project_files import check_kept
from gateway.neutral.own_files import OwnFileNamed
from gateway.runtime.byte_budget import HeldBytes
from gateway.runtime.threads import holding
from gateway.surfaces.anthropic import batches as anthropic_batches
from gateway.surfaces.bodies.validation_errors import invalid
from gateway.surfaces.openai import batches as openai_batches
from gateway.surfaces.responses import background
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web import inlined_files as inlined_files_module
from gateway.surfaces.web.http import Inbound, Operation, Outbound, Surface
from gateway.surfaces.web.operation_guard import guard
from gateway.worker.services import Services

ENDPOINTS = (*openai_batches.ENDPOINTS, anthropic_batches.ENDPOINT)
RESPONSES = "/v1/responses"
TAG = "batch"  # the metadata of each request of a batch, with its id
SHARE = 4  # bytes in memory for each byte of a line under way
HEADERS = {"content-type": "application/json"}


class BatchFormat(Protocol):
    """Batches and results in a dialect."""

    def write_result(
        self, services: Services, line: InputLine, request_id: str, status: int, answer: bytes, reason: str
    ) -> bytes: ...
    def read_error(self, text: bytes) -> LineError | None: ...
    def show(self, services: Services, job: BatchJob, task: BatchTask) -> Any: ...


FORMATS: Mapping[str, BatchFormat] = {"openai": openai_batches.FORMAT, "anthropic": anthropic_batches.FORMAT}


class BatchPort:
    """The surfaces, as batches see them (batches/line_port.py)."""

    def __init__(self, services: Services, surfaces: Iterable[Surface]) -> None:
        self._services = services
        self.operations: dict[str, Operation] = {
            operation.path: operation
            for surface in surfaces
            for operation in surface.operations
            if operation.method == "POST" and operation.path in ENDPOINTS and operation.chosen is None
        }
        self._send = {path: guard(services, operation) for path, operation in self.operations.items()}
        # The same operations with the executors of lines that a provider's batch serves.
        lines = services.engine.lines
        self._line_services = replace(
            services, engine=replace(services.engine, executor=lines.executor, chat=lines.chat)
        )
        self._deliver = {path: guard(self._line_services, operation) for path, operation in self.operations.items()}

    def measure(self, job: BatchJob, task: BatchTask, line: InputLine, caller: Caller | None = None) -> LineBound:
        """Return the bound of a line. Raises the errors of its request."""
        services = self._services
        inbound = _inbound(task, line, "")
        caller = caller or self._caller(job)
        inbound.caller = caller

        def prepare(operation: str, surface: str) -> RequestContext:
            context = auth_module.begin_line(services, inbound, caller, operation, surface, {TAG: job.id})
            context.job = MeasuredLine(self._mode_of(task))
            inbound.payload = context.payload = None
            return context

        inbound.prepared = prepare
        held = HeldBytes(services.background.bodies, job.organization)
        try:
            with holding(held):  # the files of this line, not those of all lines of a request
                self._run(line, inbound, caller)
        except LineMeasured as measured:
            request = inbound.context.request if inbound.context is not None else None
            if request is None or request.requirements.stream:
                raise invalid("stream", "the lines of a batch cannot be streamed") from None
            return LineBound(measured.payer, measured.bound_nusd, request.requested_model)
        finally:
            held.release()
        raise NotSupported("This request cannot be the line of a batch.")

    def collect(self, job: BatchJob, task: BatchTask, line: InputLine, sent: CollectedLine) -> WrittenLine | None:
        """Return a line as its target's batch API gets it; None where it must be sent as a request. Raises its
        errors."""
        services = self._services
        inbound = _inbound(task, line, "")
        inbound.caller = caller = self._caller(job)

        def prepare(operation: str, surface: str) -> RequestContext:
            context = auth_module.begin_line(services, inbound, caller, operation, surface, {TAG: job.id})
            context.job = sent
            inbound.payload = context.payload = None
            return context

        inbound.prepared = prepare
        held = HeldBytes(services.background.bodies, job.organization)
        try:
            held.grow(len(line.body) * SHARE)
            with holding(held):
                self._run(line, inbound, caller)
        except NotBatched:
            return None
        except LineWritten as written:
            operation = inbound.context.operation if inbound.context is not None else ""
            return WrittenLine(written.call, written.target, operation)
        finally:
            held.release()
        return None

    def deliver(self, job: BatchJob, task: BatchTask, line: InputLine, sending: LineSending) -> LineAnswer:
        """Read the result of a line that a provider's batch has served, and return its answer."""
        return self.send(job, task, line, sending, self._deliver)

    def write_error(self, line: InputLine, error: GatewayError) -> tuple[int, bytes]:
        """Return status and body of an error in the dialect of a line."""
        errors = self.operations[line.url].errors or http_responses_module.OPENAI
        outbound = http_responses_module.error_reply(error, errors, "")
        return outbound.status, outbound.body if isinstance(outbound.body, bytes) else b""

    def send(
        self,
        job: BatchJob,
        task: BatchTask,
        line: InputLine,
        sending: LineSending,
        handlers: Mapping[str, Callable[[Inbound], Outbound]] | None = None,
    ) -> LineAnswer:
        """Send a line and return its answer."""
        results: list[LineResult] = []
        held = HeldBytes(self._services.background.bodies, job.organization)
        try:
            held.grow(len(line.body) * SHARE)
            with holding(held):
                outbound = self._respond(job, task, line, sending, results, handlers or self._send)
        except Overloaded as error:
            return LineAnswer(error.status, b"", recorded=False, retry_after_s=1.0)
        finally:
            held.release()
        body = outbound.body if isinstance(outbound.body, bytes) else b"".join(outbound.body)
        result = results[-1] if results else None
        if result is not None and result.recorded:
            cost_nusd = result.record.cost_nusd if result.record is not None else 0
            return LineAnswer(outbound.status, body, recorded=True, cost_nusd=cost_nusd)
        return LineAnswer(outbound.status, body, recorded=False, retry_after_s=_retry_after(outbound))

    def write_result(
        self, task: BatchTask, line: InputLine, request_id: str, status: int, answer: bytes, reason: str
    ) -> bytes:
        """Return the line of a result."""
        return FORMATS[task.dialect].write_result(self._services, line, request_id, status, answer, reason)

    def read_error(self, task: BatchTask, text: bytes) -> LineError | None:
        """Return the error in the line of a result."""
        return FORMATS[task.dialect].read_error(text)

    def show(self, job: BatchJob, task: BatchTask) -> Any:
        """Return a batch as its callers see it."""
        return FORMATS[task.dialect].show(self._services, job, task)

    def _run(self, line: InputLine, inbound: Inbound, caller: Caller) -> None:
        """Run a line up to the point at which its reservation or its call ends it by an exception."""
        services = self._line_services
        handler = self.operations[line.url].handler
        try:
            handler(services, inbound)
        except OwnFileNamed as error:
            inbound.body = inlined_files_module.inline(services, caller, inbound.body, error)
            handler(services, inbound)

    def _mode_of(self, task: BatchTask) -> str:
        return mode_of(task, self._services.settings.batches)

    def _respond(
        self,
        job: BatchJob,
        task: BatchTask,
        line: InputLine,
        sending: LineSending,
        results: list[LineResult],
        handlers: Mapping[str, Callable[[Inbound], Outbound]],
    ) -> Outbound:
        services = self._services
        operation = self.operations[line.url]
        inbound = _inbound(task, line, sending.request_id)
        try:
            inbound.caller = caller = self._caller(job)
        except GatewayError as error:
            errors = operation.errors or http_responses_module.OPENAI
            return http_responses_module.error_reply(error, errors, inbound.shown_id)

        def prepare(kind: str, surface: str) -> RequestContext:
            context = auth_module.begin_line(services, inbound, caller, kind, surface, {TAG: job.id})
            context.job = sending.reservation
            payload = context.payload if isinstance(context.payload, Payload) else None
            results.append(LineResult(sending.is_claimed, sending.write, payload))
            context.payload = results[-1]
            inbound.payload = results[-1]  # type: ignore[assignment]
            return context

        inbound.prepared = prepare
        return handlers[line.url](inbound)

    def _caller(self, job: BatchJob) -> Caller:
        """Return the caller of the key of a batch now. Errors of Authentication.caller; NotFound for a key that moved
        to another project; InvalidRequest once nothing may be stored, which the answers of lines are."""
        caller = self._services.accounts.authentication.caller_of_key(job.api_key)
        if caller.project_id != job.project:
            raise NotFound("The key of this batch belongs to another project now.")
        check_kept(caller)
        return caller


def attach(services: Services, surfaces: Iterable[Surface]) -> None:
    """Let this worker run batches and make background responses."""
    port = BatchPort(services, surfaces)
    services.engine.batches.port = port
    background.attach(services, port.operations[RESPONSES])


def _inbound(task: BatchTask, line: InputLine, request_id: str) -> Inbound:
    make = partial(Inbound, "POST", line.url, {**HEADERS, **task.headers}, line.body)
    if request_id:
        make = partial(make, request_id=request_id)
    return make(peer=task.address, base_url=task.base_url)


def _retry_after(outbound: Outbound) -> float:
    for name, value in outbound.headers:
        if name.lower() == "retry-after" and value.isdigit():
            return float(value)
    return 0.0
