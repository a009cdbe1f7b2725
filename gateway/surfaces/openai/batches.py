"""/v1/batches: files of requests that the gateway sends itself, in the format of OpenAI."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import orjson
from msgspec import Meta, Raw, Struct
from msgspec.json import Decoder

from gateway.batches.batch_table import (
    CANCELED,
    CANCELING,
    COMPLETED,
    EXPIRED,
    FAILED,
    FINALIZING,
    FIRST_ERROR,
    IN_PROGRESS,
    PREFIX,
    VALIDATING,
    BatchJob,
    BatchTask,
)
from gateway.batches.input_lines import InputLine
from gateway.batches.line_port import LineError
from gateway.batches.native_rows import ProviderBatchRow
from gateway.clock import SECOND_US
from gateway.files.project_files import BATCH
from gateway.money import usd_number
from gateway.surfaces.bodies import batch_options
from gateway.surfaces.bodies.failed_lines import Failure, read_failure
from gateway.surfaces.bodies.validation_errors import invalid, read_json
from gateway.surfaces.openai.files import FileExpiry
from gateway.surfaces.visitors.validation_schemas import Body, QueryInteger, TextField, read_query
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.answer_structs import ModelApiAnswer, fill_page
from gateway.surfaces.web.http import About, Inbound, Operation, Outbound
from gateway.worker.services import Services

TAG = "Batches"
ENDPOINTS = ("/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/moderations")
STATES = (VALIDATING, FAILED, IN_PROGRESS, FINALIZING, COMPLETED, EXPIRED, CANCELING, CANCELED)
MAX_PAGE_SIZE = 100
REASONS = {
    "expired": ("batch_expired", "This request could not be executed before the completion window expired."),
    "cancelled": ("batch_cancelled", "This request was not executed, because the batch was cancelled."),
}


class BatchErrorAnswer(ModelApiAnswer, kw_only=True):
    """Why a batch failed; `line` is the number of a line of its file, from 1."""

    code: str
    message: str
    line: int | None
    param: str | None


class BatchErrorsAnswer(ModelApiAnswer, kw_only=True):
    object: Literal["list"] = "list"
    data: list[BatchErrorAnswer]


class RequestCountsAnswer(ModelApiAnswer, kw_only=True):
    total: int
    completed: int
    failed: int


class BatchCostAnswer(ModelApiAnswer, kw_only=True):
    """US dollars: the cost so far, and the most that the whole batch can cost."""

    cost: float
    bound: float


class ProviderBatchAnswer(ModelApiAnswer, kw_only=True):
    """The batch of a provider that serves lines of a batch, with the provider's id ("" before it is known) and its
    status. The counts are those that the provider reports."""

    id: str
    provider: str
    model: str
    status: str
    total: int
    succeeded: int
    failed: int

    @classmethod
    def of_row(cls, part: ProviderBatchRow) -> "ProviderBatchAnswer":
        """Return a provider's batch as callers see it."""
        return cls(
            id=part.remote,
            provider=part.provider,
            model=part.model,
            status=part.word,
            total=part.total,
            succeeded=part.succeeded,
            failed=part.failed,
        )


class BatchAnswer(ModelApiAnswer, kw_only=True):
    """OpenAI's batch object, with its cost. Times are seconds since 1970."""

    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    errors: BatchErrorsAnswer | None
    input_file_id: str
    completion_window: str
    status: Annotated[str, Meta(extra_json_schema={"enum": list(STATES)})]
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None = None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCountsAnswer
    metadata: dict[str, str] | None
    cost_details: BatchCostAnswer
    provider_batches: list[ProviderBatchAnswer]


class BatchListAnswer(ModelApiAnswer, tag_field="object", tag="list"):
    data: list[BatchAnswer]
    has_more: bool
    first_id: str | None = None
    last_id: str | None = None


class BatchQuery(Body):
    after = TextField(1, 80)
    limit = QueryInteger(1, MAX_PAGE_SIZE, load_default=20)


class BatchBody(Struct, kw_only=True):
    """Every field that has an effect; all others are accepted and dropped."""

    input_file_id: Annotated[str, Meta(min_length=1, max_length=80)]
    endpoint: Literal[ENDPOINTS]  # type: ignore[valid-type]
    completion_window: Annotated[str, Meta(max_length=16)] = "24h"
    metadata: batch_options.Metadata = None
    output_expires_after: FileExpiry | None = None
    callback_url: batch_options.CallbackUrl = None
    callback_secret: batch_options.CallbackSecret = None


DECODER = Decoder(BatchBody)


def create(services: Services, inbound: Inbound) -> Outbound:
    """Create a batch of the requests in a file with the purpose `batch`. Every line is checked, and the most that all
    of them can cost is reserved, before the first one is sent; the errors of a batch name its lines. With the header
    `X-LLMGateway-Up-To-Limit: true` nothing is reserved for the whole, and the lines run until a limit refuses them."""
    caller = auth_module.caller_of(services, inbound)
    auth_module.require_json(inbound)
    body = read_json(services.settings.limits, DECODER, inbound.body)
    file = services.engine.files.find(caller, body.input_file_id, "input_file_id")
    if file.purpose != BATCH:
        raise invalid("input_file_id", "the file must have the purpose batch")
    task = batch_options.task_of(
        services,
        inbound,
        metadata=body.metadata,
        callback=(body.callback_url, body.callback_secret),
        dialect="openai",
        input_file=file.id,
        window=body.completion_window,
        lifetime_s=body.output_expires_after.seconds if body.output_expires_after else None,
    )
    job = services.engine.batches.create(caller, body.endpoint, file, task)
    return http_responses_module.json_reply(show(job, task, ()), inbound.shown_id)


def list_batches(services: Services, inbound: Inbound) -> Outbound:
    """List the batches of the key's project, for a customer key its own, the newest first."""
    caller = auth_module.caller_of(services, inbound)
    given = read_query(BatchQuery, inbound)
    limit = given["limit"]
    batches = services.engine.batches
    jobs = batches.page(caller, given.get("after", ""), limit + 1, newest_first=True, prefix=PREFIX)
    page = BatchListAnswer([], has_more=len(jobs) > limit)
    parts = batches.parts_of(jobs[:limit])
    fill_page(page, jobs[:limit], lambda job: show(job, batches.rows.task_of(job), parts.get(job.id, ())))
    return http_responses_module.json_reply(page, inbound.shown_id)


def retrieve(services: Services, inbound: Inbound) -> Outbound:
    """Show a batch."""
    job = services.engine.batches.find(auth_module.caller_of(services, inbound), inbound.params["batch_id"])
    return _reply(services, inbound, job)


def cancel(services: Services, inbound: Inbound) -> Outbound:
    """Cancel a batch: requests under way end and are billed, no further one is sent, and the files have what ran."""
    job = services.engine.batches.cancel(auth_module.caller_of(services, inbound), inbound.params["batch_id"])
    return _reply(services, inbound, job)


def _reply(services: Services, inbound: Inbound, job: BatchJob) -> Outbound:
    shown = FORMAT.show(services, job, services.engine.batches.rows.task_of(job))
    return http_responses_module.json_reply(shown, inbound.shown_id)


def show(job: BatchJob, task: BatchTask, parts: Iterable[ProviderBatchRow]) -> BatchAnswer:
    """Return a batch as OpenAI's SDKs read it, with the batches of providers that serve its lines."""
    ended = job.ended
    ended_at = _seconds(job.completed_at)
    errors = [BatchErrorAnswer(code=e.code, message=e.message, line=e.line, param=e.param) for e in ended.errors]
    return BatchAnswer(
        id=job.id,
        endpoint=job.endpoint,
        errors=BatchErrorsAnswer(data=errors) if errors else None,
        input_file_id=task.input_file,
        completion_window=task.window,
        status=job.state,
        output_file_id=ended.output_file or None,
        error_file_id=ended.error_file or None,
        created_at=job.created_at // SECOND_US,
        in_progress_at=_seconds(job.started_at),
        expires_at=job.deadline_at // SECOND_US,
        completed_at=ended_at if job.state == COMPLETED else None,
        failed_at=ended_at if job.state == FAILED else None,
        expired_at=ended_at if job.state == EXPIRED else None,
        cancelling_at=_seconds(job.canceled_at),
        cancelled_at=ended_at if job.state == CANCELED else None,
        request_counts=RequestCountsAnswer(total=job.total, completed=job.done - job.failed, failed=job.failed),
        metadata=task.metadata,
        cost_details=BatchCostAnswer(cost=usd_number(job.cost_nusd), bound=usd_number(job.bound_nusd)),
        provider_batches=list(map(ProviderBatchAnswer.of_row, parts)),
    )


def _seconds(at_us: int | None) -> int | None:
    return None if at_us is None else at_us // SECOND_US


class SentLineResult(Struct):
    """The response in the line of a result."""

    status_code: int
    body: Raw = Raw(b"null")


class OutputLine(Struct):
    """The line of a result, as far as its error needs it."""

    custom_id: str | None = None
    line: int | None = None
    response: SentLineResult | None = None
    error: Failure | None = None


class OpenAIBatches:
    """Batches and results in the format of OpenAI."""

    def write_result(
        self, services: Services, line: InputLine, request_id: str, status: int, answer: bytes, reason: str
    ) -> bytes:
        """Return the line of a result."""
        response: dict[str, Any] | None = None
        error: dict[str, str] | None = None
        more: dict[str, int] = {"line": line.number} if reason or status >= FIRST_ERROR else {}
        if reason:
            code, message = REASONS[reason]
            error = {"code": code, "message": message}
        else:
            body = orjson.Fragment(answer or b"null")
            response = {"status_code": status, "request_id": request_id, "body": body}
        ident = f"batch_req_{request_id}" if request_id else f"batch_req_{line.number}"
        return orjson.dumps({"id": ident, "custom_id": line.custom_id, "response": response, "error": error, **more})

    def read_error(self, text: bytes) -> LineError | None:
        """Return the error in the line of a result."""
        wire = RESULT.decode(text)
        error, status = wire.error, 0
        if wire.response is not None:
            status = wire.response.status_code
            if status < FIRST_ERROR:
                return None
            error = read_failure(bytes(wire.response.body))
        error = error or Failure()
        return LineError(wire.line, wire.custom_id or "", status, error.code or error.type or "", error.message or "")

    def show(self, services: Services, job: BatchJob, task: BatchTask) -> BatchAnswer:
        """Return a batch."""
        return show(job, task, services.engine.batches.parts_of([job]).get(job.id, ()))


FORMAT = OpenAIBatches()
RESULT = Decoder(OutputLine)
OPERATIONS = (
    Operation("POST", "/v1/batches", create, body="json",
              about=About("Create a batch", TAG, request=BatchBody, answer=BatchAnswer,
                          headers=(batch_options.UP_TO_LIMIT_HEADER, batch_options.SENDING_HEADER))),
    Operation("GET", "/v1/batches", list_batches,
              about=About("List batches", TAG, query=BatchQuery, answer=BatchListAnswer)),
    Operation("GET", "/v1/batches/<batch_id>", retrieve, about=About("Show a batch", TAG, answer=BatchAnswer)),
    Operation("POST", "/v1/batches/<batch_id>/cancel", cancel, about=About("Cancel a batch", TAG, answer=BatchAnswer)),
)  # fmt: skip
