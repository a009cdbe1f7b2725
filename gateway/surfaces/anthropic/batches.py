"""/v1/messages/batches: many messages that the gateway sends itself, in the format of Anthropic."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import orjson
from msgspec import Meta, Raw, Struct
from msgspec.json import Decoder

from gateway.batches.batch_table import CANCELING, FIRST_ERROR, MESSAGES_PREFIX, BatchJob, BatchTask
from gateway.batches.input_lines import InputLine
from gateway.batches.line_port import LineError
from gateway.runtime.threads import compute_if
from gateway.surfaces.bodies import batch_options
from gateway.surfaces.bodies.failed_lines import read_failure
from gateway.surfaces.bodies.validation_errors import read_json
from gateway.surfaces.visitors.validation_schemas import Body, QueryInteger, TextField, read_query
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.answer_structs import ModelApiAnswer, Time, fill_page
from gateway.surfaces.web.http import VARY_BY_KEY, About, Inbound, Operation, Outbound
from gateway.worker.services import Services

TAG = "Batches"
ENDPOINT = "/v1/messages"
JSONL = "application/x-jsonl"
MAX_PAGE_SIZE = 1000
LARGE = 1 << 17
OK = 200
# The result of a request that was not sent → why.
UNSENT = {
    "expired": "The request could not be sent before the window of the batch ended.",
    "canceled": "The request was not sent, because the batch was cancelled.",
}


class MessageCountsAnswer(ModelApiAnswer, kw_only=True):
    processing: int
    succeeded: int
    errored: int
    canceled: int
    expired: int


class MessageBatchAnswer(ModelApiAnswer, kw_only=True):
    """Anthropic's message batch."""

    id: str
    type: Literal["message_batch"] = "message_batch"
    processing_status: Literal["in_progress", "canceling", "ended"]
    request_counts: MessageCountsAnswer
    created_at: Time
    expires_at: Time
    ended_at: Time | None
    cancel_initiated_at: Time | None
    archived_at: Time | None = None
    results_url: str | None


class MessageBatchListAnswer(ModelApiAnswer, kw_only=True):
    data: list[MessageBatchAnswer]
    has_more: bool
    first_id: str | None = None
    last_id: str | None = None


class MessageBatchDeletedAnswer(ModelApiAnswer, kw_only=True):
    id: str
    type: Literal["message_batch_deleted"] = "message_batch_deleted"


class MessageBatchQuery(Body):
    after_id = TextField(1, 80)
    before_id = TextField(1, 80)
    limit = QueryInteger(1, MAX_PAGE_SIZE, load_default=20)


class BatchedMessage(Struct, kw_only=True):
    """A request of a batch: `params` is the body of POST /v1/messages."""

    custom_id: Annotated[str, Meta(min_length=1, max_length=512)]
    params: Any


class BatchedRaw(Struct, kw_only=True):
    """The same without decoding the request."""

    custom_id: Annotated[str, Meta(min_length=1, max_length=512)]
    params: Raw


class MessageBatchBody(Struct, kw_only=True):
    requests: Annotated[list[BatchedMessage], Meta(min_length=1)]
    callback_url: batch_options.CallbackUrl = None
    callback_secret: batch_options.CallbackSecret = None


class MessageBatchRaw(Struct, kw_only=True):
    requests: Annotated[list[BatchedRaw], Meta(min_length=1)]
    callback_url: batch_options.CallbackUrl = None
    callback_secret: batch_options.CallbackSecret = None


DECODER = Decoder(MessageBatchRaw)


def create(services: Services, inbound: Inbound) -> Outbound:
    """Create a batch of messages. Every request is checked, and the most that all of them can cost is reserved, before
    the first one is sent. With the header `X-LLMGateway-Up-To-Limit: true` nothing is reserved for the whole, and the
    requests run until a limit refuses them."""
    caller = auth_module.caller_of(services, inbound)
    auth_module.require_json(inbound)
    body = read_json(services.settings.limits, DECODER, inbound.body)
    callback = (body.callback_url, body.callback_secret)
    task = batch_options.task_of(
        services, inbound, metadata=None, callback=callback, dialect="anthropic", one_file=True
    )
    job = services.engine.batches.create_checked(caller, ENDPOINT, _lines(body), task)
    return _reply(inbound, job, task)


def list_batches(services: Services, inbound: Inbound) -> Outbound:
    """List the batches of messages of the key's project, the newest first."""
    caller = auth_module.caller_of(services, inbound)
    given = read_query(MessageBatchQuery, inbound)
    limit = given["limit"]
    before = given.get("before_id", "")
    after = before or given.get("after_id", "")
    batches = services.engine.batches
    jobs = batches.page(caller, after, limit + 1, newest_first=not before, prefix=MESSAGES_PREFIX)
    shown = jobs[:limit][::-1] if before else jobs[:limit]
    page = MessageBatchListAnswer(data=[], has_more=len(jobs) > limit)
    fill_page(page, shown, lambda job: show(job, batches.rows.task_of(job)))
    return http_responses_module.json_reply(page, inbound.shown_id)


def retrieve(services: Services, inbound: Inbound) -> Outbound:
    """Show a batch of messages."""
    job = _find(services, inbound)
    return _reply(inbound, job, services.engine.batches.rows.task_of(job))


def cancel(services: Services, inbound: Inbound) -> Outbound:
    """Cancel a batch: requests under way end and are billed, and no further one is sent."""
    ident = inbound.params["message_batch_id"]
    job = services.engine.batches.cancel(auth_module.caller_of(services, inbound), ident)
    return _reply(inbound, job, services.engine.batches.rows.task_of(job))


def delete(services: Services, inbound: Inbound) -> Outbound:
    """Delete a batch that has ended, with its results."""
    ident = inbound.params["message_batch_id"]
    services.engine.batches.delete(auth_module.caller_of(services, inbound), ident)
    return http_responses_module.json_reply(MessageBatchDeletedAnswer(id=ident), inbound.shown_id)


def results(services: Services, inbound: Inbound) -> Outbound:
    """Stream the results of a batch that has ended, one JSON object a line, in the order of its requests."""
    pieces = services.engine.batches.results(_find(services, inbound))
    headers = [
        ("Content-Type", JSONL),
        ("Cache-Control", "private, no-transform"),
        ("Vary", VARY_BY_KEY),
        ("x-request-id", inbound.shown_id),
    ]
    return Outbound(OK, headers, pieces)


def show(job: BatchJob, task: BatchTask) -> MessageBatchAnswer:
    """Return a batch as Anthropic's SDKs read it."""
    ended = job.ended
    status: Any = "canceling" if job.state == CANCELING else "in_progress"
    counts = MessageCountsAnswer(processing=job.total, succeeded=0, errored=0, canceled=0, expired=0)
    if job.has_ended:
        status = "ended"
        counts = MessageCountsAnswer(
            processing=0,
            succeeded=job.done - job.failed,
            errored=job.failed,
            canceled=ended.canceled,
            expired=ended.expired,
        )
    url = f"{task.base_url}/v1/messages/batches/{job.id}/results" if ended.output_file else None
    return MessageBatchAnswer.of(
        id=job.id,
        processing_status=status,
        request_counts=counts,
        created_at=job.created_at,
        expires_at=job.deadline_at,
        ended_at=job.completed_at,
        cancel_initiated_at=job.canceled_at,
        results_url=url,
    )


def _find(services: Services, inbound: Inbound) -> BatchJob:
    caller = auth_module.caller_of(services, inbound)
    return services.engine.batches.find(caller, inbound.params["message_batch_id"])


def _reply(inbound: Inbound, job: BatchJob, task: BatchTask) -> Outbound:
    return http_responses_module.json_reply(show(job, task), inbound.shown_id)


def _lines(body: MessageBatchRaw) -> Iterator[bytes]:
    """Yield the requests as the lines of a file."""
    for request in body.requests:
        params = bytes(request.params)
        yield compute_if(len(params) > LARGE, _line, request.custom_id, params)


def _line(custom_id: str, params: bytes) -> bytes:
    # Written again, because a line has no line breaks.
    line = {"custom_id": custom_id, "method": "POST", "url": ENDPOINT, "body": orjson.loads(params)}
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


class ResultOfLine(Struct):
    """The result in a line, as far as its error needs it."""

    type: str
    error: Raw = Raw(b"null")


class MessageResultLine(Struct):
    """The line of a result."""

    custom_id: str
    result: ResultOfLine


RESULT = Decoder(MessageResultLine)


class AnthropicBatches:
    """Batches and results in the format of Anthropic."""

    def write_result(
        self, services: Services, line: InputLine, request_id: str, status: int, answer: bytes, reason: str
    ) -> bytes:
        """Return the line of a result."""
        result: dict[str, Any]
        if reason:
            result = {"type": "canceled" if reason == "cancelled" else reason}
        elif status < 400:
            result = {"type": "succeeded", "message": orjson.Fragment(answer)}
        else:
            result = {"type": "errored", "error": orjson.Fragment(answer or b"null")}
        return orjson.dumps({"custom_id": line.custom_id, "result": result})

    def read_error(self, text: bytes) -> LineError | None:
        """Return the error in the line of a result."""
        wire = RESULT.decode(text)
        if wire.result.type == "succeeded":
            return None
        if wire.result.type in UNSENT:
            return LineError(None, wire.custom_id, 0, wire.result.type, UNSENT[wire.result.type])
        error = read_failure(bytes(wire.result.error))
        return LineError(None, wire.custom_id, FIRST_ERROR, error.code or error.type or "", error.message or "")

    def show(self, services: Services, job: BatchJob, task: BatchTask) -> MessageBatchAnswer:
        return show(job, task)


FORMAT = AnthropicBatches()
EXAMPLE = {
    "requests": [
        {
            "custom_id": "line-1",
            "params": {
                "model": "sandbox-echo",
                "max_tokens": 100,
                "messages": [{"role": "user", "content": "Hello!"}],
            },
        }
    ]
}
BATCH = "/v1/messages/batches/<message_batch_id>"
OPERATIONS = (
    Operation("POST", "/v1/messages/batches", create, body="json",
              about=About("Create a batch of messages", TAG, request=MessageBatchBody, answer=MessageBatchAnswer,
                          headers=(batch_options.UP_TO_LIMIT_HEADER, batch_options.SENDING_HEADER), example=EXAMPLE)),
    Operation("GET", "/v1/messages/batches", list_batches,
              about=About("List batches of messages", TAG, query=MessageBatchQuery, answer=MessageBatchListAnswer)),
    Operation("GET", BATCH, retrieve, about=About("Show a batch of messages", TAG, answer=MessageBatchAnswer)),
    Operation("POST", f"{BATCH}/cancel", cancel,
              about=About("Cancel a batch of messages", TAG, answer=MessageBatchAnswer)),
    Operation("DELETE", BATCH, delete,
              about=About("Delete a batch of messages", TAG, answer=MessageBatchDeletedAnswer)),
    Operation("GET", f"{BATCH}/results", results,
              about=About("Stream the results of a batch of messages", TAG,
                          answer={"type": "string", "format": "binary"}, media=JSONL)),
)  # fmt: skip
