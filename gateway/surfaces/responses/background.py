"""Background responses: begun by a request, made by a worker, and read or cancelled by later requests."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from gateway.billing.context import RequestContext
from gateway.callers.access import keeps_nothing
from gateway.callers.authentication import Caller
from gateway.engine.background_responses import BackgroundChatEngine
from gateway.engine.stored_responses import storage_conflict
from gateway.errors import GatewayError, Internal, InvalidRequest, UpstreamFailed
from gateway.jobs.response_jobs import CANCELED, FAILED, ResponseJob, ResponseMaker
from gateway.jobs.sent_responses import ResponseCall
from gateway.runtime.threads import compute_if
from gateway.surfaces.responses import schema
from gateway.surfaces.responses.store import ID_PREFIX
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.surfaces.web.operation_guard import guard
from gateway.worker.services import Services

# Headers that the request of a background response keeps: its options, and nothing that identifies its caller.
KEPT = ("x-llmgateway-", "x-no-fallback", "x-no-cache", "x-debug", "x-request-id", "session", "x-session")
DATA = b"data: "
LARGE = 1 << 16  # bytes of a request that is written and read in a thread
INTERRUPTED = "The gateway was interrupted while it made this response. Send the request again."


def begin(
    services: Services, inbound: Inbound, context: RequestContext, body: schema.ResponsesBody, queued: Any
) -> Outbound:
    """Begin a background response and return it, or the stream of its events. The caller's connection has no part in
    it."""
    if body.store is False:
        raise InvalidRequest("A background response must be stored; leave out store.", param="store")
    headers = {name: value for name, value in inbound.headers.items() if name.startswith(KEPT)}
    about = {"headers": headers, "peer": inbound.peer, "base_url": inbound.base_url}
    request = compute_if(len(inbound.body) > LARGE, _write_request, inbound.body, about)
    ident = ID_PREFIX + context.request_id
    services.engine.response_jobs.begin(context.caller, ident, request, orjson.dumps(queued))
    inbound.payload = context.payload = None  # that of the request which makes the response
    if body.stream:
        return http_responses_module.stream_reply(services.engine.response_jobs.events(ident, -1), context.shown_id)
    return http_responses_module.json_reply(orjson.dumps(queued), context.shown_id)


def _write_request(body: bytes, about: dict[str, Any]) -> bytes:
    """Return what another worker needs to make the response."""
    return orjson.dumps({"body": orjson.loads(body) | {"stream": True}, **about})


def _read_request(request: bytes) -> tuple[dict[str, Any], bytes]:
    """Return what `_write_request` wrote, and the body of the request."""
    wire = orjson.loads(request)
    return wire, orjson.dumps(wire.pop("body"))


def find(services: Services, inbound: Inbound) -> ResponseJob | None:
    """Return the background response of the path; None where the path names another response, or none."""
    caller = auth_module.caller_of(services, inbound)
    return services.engine.response_jobs.find(caller, inbound.params["response_id"])


def stream(services: Services, inbound: Inbound, job: ResponseJob) -> Outbound:
    """Stream the events of a background response after the number `starting_after`, from its worker or any other."""
    check(services, inbound, job)
    text = inbound.arguments().get("starting_after", "")
    if text and not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidRequest("starting_after must be the sequence number of an event.", param="starting_after")
    events = services.engine.response_jobs.events(job.id, int(text) if text else -1)
    return http_responses_module.stream_reply(events, inbound.shown_id)


def check(services: Services, inbound: Inbound, job: ResponseJob) -> None:
    """Check that the caller may read what a response has: InvalidRequest under zero data retention, Forbidden for what
    access rules, added since, deny to the caller."""
    caller = auth_module.caller_of(services, inbound)
    if keeps_nothing(caller.rules):
        raise storage_conflict("response_id")
    if caller.rules:
        services.engine.replays.check(caller, inbound.peer, [job.id.removeprefix(ID_PREFIX)])


def object_of(services: Services, job: ResponseJob) -> dict[str, Any]:
    """Return the response object of a background response."""
    response: dict[str, Any] = orjson.loads(services.engine.response_jobs.object_of(job))
    if not job.has_ended:
        response["status"] = job.state
    return response


def cancel(services: Services, inbound: Inbound, job: ResponseJob) -> Outbound:
    """Cancel a background response: its provider's call ends, and what it used is billed. One that has ended is
    returned unchanged."""
    job = services.engine.response_jobs.cancel_job(job)
    if job.state != CANCELED:
        check(services, inbound, job)
    return http_responses_module.json_reply(orjson.dumps(object_of(services, job)), inbound.shown_id)


def attach(services: Services, operation: Operation) -> None:
    """Let this worker make background responses; `operation` is the creation of responses."""

    def open_stream(job: ResponseJob, request: bytes, call: ResponseCall) -> Iterator[bytes]:
        wire, body = compute_if(len(request) > LARGE, _read_request, request)
        inbound = Inbound(
            "POST",
            operation.path,
            {"content-type": "application/json", **wire["headers"]},
            body,
            peer=wire["peer"],
            base_url=wire["base_url"],
            request_id=job.id.removeprefix(ID_PREFIX),
        )
        inbound.caller = caller = services.accounts.authentication.caller_of_key(job.api_key)
        inbound.prepared = partial(_prepare, services, inbound, caller, job.created_at)
        engine = services.engine
        chat = BackgroundChatEngine(engine.chat, engine.response_jobs.calls.calls, call.making(inbound))
        handle = guard(replace(services, engine=replace(engine, chat=chat)), operation)
        outbound = handle(inbound)
        if isinstance(outbound.body, bytes):
            raise _error_of(outbound)
        return outbound.body

    services.engine.response_jobs.maker = ResponseMaker(open_stream, _fail, _read, services.engine.responses.forget)


def _prepare(
    services: Services, inbound: Inbound, caller: Caller, created_at: int, operation: str, surface: str
) -> RequestContext:
    context = auth_module.context_of(services, inbound, caller, operation, surface)
    context.at_us = created_at  # the same in each worker that makes the response
    return context


def _error_of(outbound: Outbound) -> GatewayError:
    body = outbound.body if isinstance(outbound.body, bytes) else b""
    error = orjson.loads(body).get("error", {}) if body else {}
    message = str(error.get("message") or "The response failed.")
    return UpstreamFailed(message, code=str(error.get("code") or "server_error"))


def _fail(response: bytes, error: GatewayError | None, number: int) -> tuple[bytes, bytes]:
    """Return the object and the last frame of a response that failed; None: its worker died."""
    failure = error or Internal(INTERRUPTED)
    about = {"code": failure.code if error is not None else "server_error", "message": failure.message}
    failed = orjson.loads(response) | {"status": FAILED, "error": about}
    event = {"type": "response.failed", "response": failed, "sequence_number": number}
    return orjson.dumps(failed), b"event: response.failed\ndata: %b\n\n" % orjson.dumps(event)


def _read(frame: bytes) -> bytes:
    """Return the response object in a frame."""
    data = frame.partition(DATA)[2]
    return orjson.dumps(orjson.loads(data)["response"])
