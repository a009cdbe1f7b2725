"""The guard around the handler of an operation: errors, reports, repeated requests and deprecation."""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial

import orjson

from gateway.billing.context import MODELS_HEADER, PROVIDER_HEADER
from gateway.callers.authentication import Caller
from gateway.engine.idempotency import KeyedRequest, StoredReply
from gateway.engine.payload_collection import Payload
from gateway.errors import Cancelled, GatewayError, Gone
from gateway.neutral.own_files import OwnFileNamed
from gateway.runtime.threads import compute
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web import inlined_files as inlined_files_module
from gateway.surfaces.web import policy as policy_module
from gateway.surfaces.web.forms import digest_without
from gateway.surfaces.web.http import ErrorFormat, Handler, Inbound, Operation, Outbound
from gateway.telemetry.request_observers import ClosingBody, OperationReporter
from gateway.worker.services import Services

# Records the answers of paid operations while they are sent, the same for every surface.

log = logging.getLogger("gateway")


def keep(inbound: Inbound, payload: Payload, outbound: Outbound, errors: ErrorFormat) -> Outbound:
    """Record the response durably, together with its settlement, before its last bytes leave. Raise 503 when that takes
    too long."""
    body = outbound.body
    status = outbound.status
    if not isinstance(body, bytes):
        return Outbound(status, outbound.headers, CapturedStream(body, status, payload, errors, inbound.shown_id))
    payload.add(body)
    try:
        payload.finish(status)
    except GatewayError as error:
        return http_responses_module.error_reply(error, errors, inbound.shown_id)
    return outbound


def leave(inbound: Inbound) -> None:
    """Release the recording of a caller who disconnected before there was a response. Never raises."""
    if inbound.payload is not None:
        _end(inbound.payload, Cancelled.status)


class CapturedStream:
    """A stream that is recorded while it is sent. At its end, the last chunk waits for the settlement."""

    def __init__(
        self, pieces: Iterator[bytes], status: int, payload: Payload, errors: ErrorFormat, request_id: str
    ) -> None:
        self._pieces = pieces
        self._status = status
        self._payload = payload
        self._errors = errors
        self._request_id = request_id
        self._copies = self._copy()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._copies)

    def close(self) -> None:
        """Keep the part of the stream that was sent."""
        self._copies.close()
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()
        _end(self._payload, self._status)

    def _copy(self) -> Generator[bytes, None, None]:
        pieces = iter(self._pieces)
        payload = self._payload
        for piece in pieces:
            payload.add(piece)
            # The settlement is complete, so waiting for the next chunk to detect the end delays no caller.
            while payload.held:
                following = next(pieces, None)
                if following is None:
                    try:
                        payload.finish(self._status)
                    except GatewayError as error:
                        piece = self._write_error(error)
                    break
                yield piece
                piece = following
                payload.add(piece)
            yield piece

    def _write_error(self, error: GatewayError) -> bytes:
        if self._errors.frame is not None:
            return self._errors.frame(error, self._request_id)
        body = self._errors.body(error, self._request_id)
        return b"event: error\ndata: %b\n\n" % orjson.dumps(body)


def _end(payload: Payload, status: int) -> None:
    try:
        payload.end(status)
    except GatewayError as error:
        log.error("a usage record is left to crash recovery: %s", error.message)


NO_RESPONSE = Outbound(500, [])
KEY_HEADER = "idempotency-key"
CALLER_DISCONNECTED = "The caller disconnected before the response was ready."
# Headers that change the meaning of a request, as body fields of other surfaces do. Headers that identify one attempt
# differ for each retry and are left out.
IGNORED_HEADERS = ("ai-language-model-", MODELS_HEADER, PROVIDER_HEADER)
# Headers that describe the first response and would be wrong in a replay, and the prefix of rate limit headers.
OF_THE_FIRST = {"x-request-id", "request-id", "x-llmgateway-cost", "x-llmgateway-overhead-ms"}
OF_RATES = ("ratelimit", "x-ratelimit", "anthropic-ratelimit")


def guard(services: Services, operation: Operation) -> Callable[[Inbound], Outbound]:
    """Wrap the handler so that every error becomes a response in the format of its surface; no exception escapes."""
    handler = _build_handler(operation)
    errors = operation.errors or http_responses_module.OPENAI
    paid = operation.paid
    end = services.telemetry.requests.of(name_of(operation), paid)
    now = services.clock.monotonic

    def handle(inbound: Inbound, keyed: bool = paid and not operation.upgrades) -> Outbound:
        if keyed and KEY_HEADER in inbound.headers:
            return _respond_once(services, errors, inbound, partial(handle, keyed=False), end)
        failure: GatewayError | None = None
        started = now()
        try:
            outbound = handler(services, inbound)
        except GatewayError as error:
            # The traceback is dropped because it refers to this frame: the cycle would keep the body in memory until
            # the next garbage collection.
            outbound, failure = _respond_with_files(services, inbound, handler, error.with_traceback(None))
        except Exception as error:
            failure = http_responses_module.crashed(inbound, error, inbound.shown_id)
        except BaseException:
            if paid:
                leave(inbound)
            end(inbound, Cancelled.status, started, Cancelled(CALLER_DISCONNECTED))
            raise
        if failure is not None:
            outbound = http_responses_module.error_reply(failure, errors.of(inbound), inbound.shown_id)
        if paid and inbound.payload is not None:
            outbound = keep(inbound, inbound.payload, outbound, errors.of(inbound))
        body = outbound.body
        if isinstance(body, bytes):
            end(inbound, outbound.status, started, failure or outbound.failure)
        else:
            inbound.body = b""  # not needed while the response is streamed
            outbound.body = ClosingBody(body, partial(end.of_stream, inbound, outbound.status, started))
        return outbound

    return _with_deprecation_headers(handle, operation)


def _respond_with_files(
    services: Services, inbound: Inbound, handler: Handler, error: GatewayError
) -> tuple[Outbound, GatewayError | None]:
    """Return the response of a request that names stored files, once their contents are in it; for any other error the
    error."""
    if not isinstance(error, OwnFileNamed):
        return NO_RESPONSE, error
    try:
        return inlined_files_module.respond(services, inbound, handler, error), None
    except GatewayError as failure:
        return NO_RESPONSE, failure.with_traceback(None)
    except Exception as failure:
        return NO_RESPONSE, http_responses_module.crashed(inbound, failure, inbound.shown_id)


def guard_among(
    services: Services, operation: Operation, choices: Iterable[Operation]
) -> Callable[[Inbound], Outbound]:
    """Guard an operation and those among `choices` at the same path, which serve the requests that they claim."""
    handle = guard(services, operation)
    others = [
        (choice.chosen, guard(services, choice))
        for choice in choices
        if (choice.method, choice.path) == (operation.method, operation.path) and choice.chosen is not None
    ]
    if not others:
        return handle

    def choose(inbound: Inbound) -> Outbound:
        for claims, other in others:
            if claims(inbound):
                return other(inbound)
        return handle(inbound)

    return choose


def _with_deprecation_headers(
    handle: Callable[[Inbound], Outbound], operation: Operation
) -> Callable[[Inbound], Outbound]:
    """Wrap `handle` so that every response announces that the operation is deprecated, if it is."""
    if not operation.deprecated:
        return handle
    notices = http_responses_module.deprecation_headers(operation.deprecated)

    def handle_deprecated(inbound: Inbound) -> Outbound:
        outbound = handle(inbound)
        outbound.headers = [*outbound.headers, *notices]
        return outbound

    return handle_deprecated


def name_of(operation: Operation) -> str:
    """Return the operation's name in metrics and logs: "POST /v1/chat/completions"."""
    return f"{operation.method} {operation.path}"


def _build_handler(operation: Operation) -> Handler:
    """Return the operation's handler with all wrappers."""
    handler = _until_removal(operation)
    if operation.body == "form":
        return _closing_files(handler)
    return handler


def _closing_files(handler: Handler) -> Handler:
    """Wrap `handler` so that the files of a request are deleted after its response."""

    def handle(services: Services, inbound: Inbound) -> Outbound:
        try:
            outbound = handler(services, inbound)
        except BaseException:
            inbound.close_files()
            raise
        if isinstance(outbound.body, bytes):
            inbound.close_files()
        else:
            outbound.body = ClosingBody(outbound.body, inbound.close_files)
        return outbound

    return handle


def _until_removal(operation: Operation) -> Handler:
    """Return the handler of an operation; after the removal date of a deprecated operation it raises Gone."""
    deprecated = operation.deprecated
    if deprecated is None:
        return operation.handler

    def handle(services: Services, inbound: Inbound) -> Outbound:
        if http_responses_module.is_over(deprecated, services.clock.now_us()):
            raise Gone(
                f"{operation.method} {operation.path} was removed on {deprecated.sunset}; see {policy_module.ADDRESS}."
            )
        return operation.handler(services, inbound)

    return handle


def _respond_once(
    services: Services,
    errors: ErrorFormat,
    inbound: Inbound,
    handle: Callable[[Inbound], Outbound],
    end: OperationReporter,
) -> Outbound:
    """Return the response to a request with an Idempotency-Key: a new one, or the stored one of an earlier attempt."""
    started = services.clock.monotonic()

    def make() -> StoredReply:
        outbound = handle(inbound)
        return StoredReply(outbound.status, outbound.headers, outbound.body)

    try:
        caller = auth_module.caller_of(services, inbound)
        route = f"{inbound.method} {inbound.path}"
        keyed = KeyedRequest(caller, inbound.header(KEY_HEADER), route, _request_content(inbound), inbound.request_id)
        reply = services.engine.idempotency.answer(keyed, make, partial(_check_replay, services, caller, inbound))
    except GatewayError as error:
        inbound.close_files()
        end(inbound, error.status, started, error)
        return http_responses_module.error_reply(error, errors.of(inbound), inbound.shown_id)
    if not reply.replayed:
        return Outbound(reply.status, reply.headers, reply.body)
    inbound.close_files()
    end(inbound, reply.status, started, replayed=True)
    return Outbound(reply.status, _replayed_headers(reply, inbound.shown_id), reply.body)


def _check_replay(services: Services, caller: Caller, inbound: Inbound, request_id: str) -> None:
    services.engine.replays.check(caller, inbound.peer, [request_id])


def _request_content(inbound: Inbound) -> tuple[bytes, ...]:
    """Return everything that identifies the content of a request. The boundary of a form is new each time it is sent,
    so it is left out."""
    kind, _, boundary = inbound.header("content-type").partition("boundary=")
    body = inbound.body
    if inbound.upload is not None:
        body = compute(digest_without, inbound.upload, boundary.partition(";")[0].strip('"').encode())
    chosen = [
        f"{name}:{value}".encode()
        for name, value in sorted(inbound.headers.items())
        if name.startswith(IGNORED_HEADERS)
    ]
    return (body, kind.encode(), inbound.query.encode(), *chosen)


def _replayed_headers(reply: StoredReply, shown_id: str) -> list[tuple[str, str]]:
    kept = [
        (name, value)
        for name, value in reply.headers
        if name.lower() not in OF_THE_FIRST and not name.lower().startswith(OF_RATES)
    ]
    own = [("x-request-id", shown_id), ("x-llmgateway-cost", "0"), ("idempotent-replayed", "true")]
    # A retry with the same key could only return the same error.
    if reply.status >= 500:
        return [*kept, *own, ("x-should-retry", "false")]
    return [*kept, *own]
