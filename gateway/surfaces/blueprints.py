"""Operations as Flask blueprints: a thin adapter around the same handlers that the express lane calls."""

import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from flask import Blueprint, Flask, Response, request
from werkzeug.routing import Map, PathConverter, Rule

from gateway.accounts.authentication import Caller
from gateway.billing.context import MODELS_HEADER, PROVIDER_HEADER
from gateway.configuration.settings import Server
from gateway.engine.idempotency import Keyed, StoredReply
from gateway.errors import Cancelled, GatewayError, Gone
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.threads import compute
from gateway.surfaces import answer_recording, auth, http_responses, policy
from gateway.surfaces.early_auth import EarlyAuth
from gateway.surfaces.forms import digest_without
from gateway.surfaces.http import ErrorFormat, Handler, Inbound, Operation, Outbound, Surface
from gateway.surfaces.proxies import Proxies
from gateway.surfaces.wsgi import REQUEST_ID, read_base_url, read_headers, read_inbound
from gateway.telemetry.request_observers import ClosingBody, OperationReporter
from gateway.worker.services import Services

if TYPE_CHECKING:
    from gateway.surfaces import sock_upgrades
    from gateway.surfaces.sock_upgrades import SockChannel
else:
    sock_upgrades = LazyImport("gateway.surfaces.sock_upgrades")

log = logging.getLogger(__name__)

KEY_HEADER = "idempotency-key"
OWN_ID = re.compile(r"[0-9a-f]{32}")
HUNG_UP = "The caller disconnected before the response was ready."
# Headers that change the meaning of a request, as body fields of other surfaces do. Headers that identify one attempt
# differ for each retry and are left out.
CHOOSING = ("ai-language-model-", MODELS_HEADER, PROVIDER_HEADER)
# Headers that describe the first response and would be wrong in a replay, and the prefix of rate limit headers.
OF_THE_FIRST = {"x-request-id", "request-id", "x-llmgateway-cost", "x-llmgateway-overhead-ms"}
OF_RATES = ("ratelimit", "x-ratelimit", "anthropic-ratelimit")


def guard(services: Services, operation: Operation) -> Callable[[Inbound], Outbound]:
    """Wrap the handler so that every error becomes a response in the format of its surface; no exception escapes."""
    handler = _build_handler(operation)
    errors = operation.errors or http_responses.OPENAI
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
            failure = error.with_traceback(None)
        except Exception as error:
            failure = http_responses.crashed(inbound, error, inbound.shown_id)
        except BaseException:
            if paid:
                answer_recording.leave(inbound)
            end(inbound, Cancelled.status, started, Cancelled(HUNG_UP))
            raise
        if failure is not None:
            outbound = http_responses.error_reply(failure, errors.of(inbound), inbound.shown_id)
        if paid and inbound.payload is not None:
            outbound = answer_recording.keep(inbound, inbound.payload, outbound, errors.of(inbound))
        body = outbound.body
        if isinstance(body, bytes):
            end(inbound, outbound.status, started, failure or outbound.failure)
        else:
            outbound.body = ClosingBody(body, partial(end.of_stream, inbound, outbound.status, started))
        return outbound

    return (
        _with_deprecation_headers(handle, http_responses.deprecation_headers(operation.deprecated))
        if operation.deprecated
        else handle
    )


def _with_deprecation_headers(
    handle: Callable[[Inbound], Outbound], notices: list[tuple[str, str]]
) -> Callable[[Inbound], Outbound]:
    """Wrap `handle` so that every response announces that the operation is deprecated."""

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
    """Return the operation's handler. A deprecated operation raises Gone from its removal date on."""
    deprecated = operation.deprecated
    if deprecated is None:
        return operation.handler

    def handle(services: Services, inbound: Inbound) -> Outbound:
        if http_responses.is_over(deprecated, services.clock.now_us()):
            raise Gone(f"{operation.method} {operation.path} was removed on {deprecated.sunset}; see {policy.ADDRESS}.")
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
        caller = auth.caller_of(services, inbound)
        route = f"{inbound.method} {inbound.path}"
        keyed = Keyed(caller, inbound.header(KEY_HEADER), route, _request_content(inbound), inbound.request_id)
        reply = services.engine.idempotency.answer(keyed, make, partial(_check_replay, services, caller, inbound))
    except GatewayError as error:
        inbound.close_files()
        end(inbound, error.status, started, error)
        return http_responses.error_reply(error, errors.of(inbound), inbound.shown_id)
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
        f"{name}:{value}".encode() for name, value in sorted(inbound.headers.items()) if name.startswith(CHOOSING)
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


class MatchedRule(Rule):
    """A rule that is only used for matching. For each rule Werkzeug also generates and compiles two functions that
    build URLs, which take two thirds of the time that all rules cost at startup."""

    def _compile_builder(self, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
        return _write_no_address


class AnyPath(PathConverter):
    """The rest of a path for `<path:name>`. Werkzeug's own converter matches no line break: such a path would reach no
    operation, and be answered in the error format of another surface."""

    regex = "[^/](?s:.*?)"


def _write_no_address(rule: Rule, **values: Any) -> tuple[str, str]:
    raise RuntimeError("Building a URL from a rule is not supported.")


def mount(flask: Flask, services: Services, surfaces: tuple[Surface, ...]) -> None:
    """Register the operations of these surfaces with `flask`, one blueprint each. Raises ValueError for a duplicate
    name."""
    flask.url_map = compile_rules(surfaces)
    gate = EarlyAuth(services)
    proxies = make_proxies(services.settings.server)
    choices = [operation for surface in surfaces for operation in surface.operations if operation.chosen is not None]
    for surface in surfaces:
        made = Blueprint(surface.name, __name__)
        for operation in surface.operations:
            if operation.chosen is None:
                handle = _handler_among(services, operation, choices)
                made.endpoint(_endpoint_of(surface, operation))(_view(services, operation, handle, gate, proxies))
        flask.register_blueprint(made)


@cache
def compile_rules(surfaces: tuple[Surface, ...]) -> Map:
    """Return the rules that match the paths of these surfaces. They are compiled once, which takes 8 ms, for all
    applications of this process and of those that are forked from it."""
    rules = Map(converters={"path": AnyPath})
    for surface in surfaces:
        for operation in surface.operations:
            if operation.chosen is None:
                for upgrades in (False, True) if operation.upgrades else (False,):  # the routing distinguishes them
                    endpoint = _endpoint_of(surface, operation)
                    methods = [operation.method]
                    rules.add(MatchedRule(operation.path, methods=methods, websocket=upgrades, endpoint=endpoint))
    rules.update()
    return rules


def _endpoint_of(surface: Surface, operation: Operation) -> str:
    # Flask takes everything before the last dot as the name of the blueprint.
    return f"{surface.name}.{name_of(operation).replace('.', '_')}"


def _handler_among(services: Services, operation: Operation, choices: list[Operation]) -> Callable[[Inbound], Outbound]:
    """Return the handler of an operation, or of the one among `choices` at the same path that claims a request."""
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


def make_proxies(server: Server) -> Proxies:
    """Return the trusted proxies from the settings."""
    return Proxies(server.client_ip_header, server.trusted_proxies, server.proxy_hops)


def _view(
    services: Services,
    operation: Operation,
    handle: Callable[[Inbound], Outbound],
    gate: EarlyAuth,
    proxies: Proxies,
) -> Callable[..., Response]:
    server = services.settings.server
    max_body = server.max_body_mb << 20
    max_form = server.max_form_mb << 20

    def view(**params: str) -> Response:
        try:
            inbound = read_inbound(
                request.environ,
                params,
                max_body=max_body,
                proxies=proxies,
                public_url=server.public_url,
                admit=gate.owner,
                run=services.background.unpackers.run,
                max_form=max_form,
                spool_dir=services.settings.spool_dir,
            )
        except GatewayError as error:
            return respond(_answer_refusal(services, operation, request.environ, proxies, error))
        if operation.upgrades and inbound.channel is None:
            inbound.channel = sock_upgrades.channel_of(request.environ)
            return _respond_by_sock(handle(inbound), inbound.channel)
        return respond(handle(inbound))

    return view


def _answer_refusal(
    services: Services, operation: Operation, environ: Mapping[str, Any], proxies: Proxies, error: GatewayError
) -> Outbound:
    """Return the response to a request with an unread body. The request's headers identify the caller."""
    headers = read_headers(environ)
    shown_id = environ.get(REQUEST_ID, "")
    peer = proxies.caller(environ.get("REMOTE_ADDR", ""), headers)
    base_url = services.settings.server.public_url.rstrip("/") or read_base_url(environ)
    inbound = Inbound(operation.method, operation.path, headers, peer=peer, base_url=base_url)
    if not inbound.header("x-request-id") and OWN_ID.fullmatch(shown_id):
        inbound.request_id = shown_id
    if operation.paid:
        with suppress(GatewayError):
            auth.caller_of(services, inbound)
    end = services.telemetry.requests.of(name_of(operation), operation.paid)
    end(inbound, error.status, services.clock.monotonic(), error)
    errors = operation.errors or http_responses.OPENAI
    if errors.mend is not None:
        error = errors.mend(error, inbound)
    return http_responses.error_reply(error, errors, shown_id)


def respond(outbound: Outbound) -> Response:
    """Return the Flask response of an Outbound; an iterator body is sent item by item."""
    if outbound.takeover is not None:
        return TakenOver(outbound)
    response = Response(outbound.body, status=outbound.status, direct_passthrough=not isinstance(outbound.body, bytes))
    response.headers.clear()
    response.headers.extend(outbound.headers)
    return response


class TakenOver(Response):
    """The response of an operation that serves the connection itself."""

    def __init__(self, outbound: Outbound) -> None:
        super().__init__(status=outbound.status)
        self._outbound = outbound

    def __call__(self, environ: Any, start_response: Any) -> Any:
        """Serve the connection to its end, then raise StopIteration, which means that nothing remains to be sent."""
        take_over(self._outbound)
        raise StopIteration


def take_over(outbound: Outbound) -> None:
    """Let the operation serve the connection to its end."""
    try:
        if outbound.takeover is not None:
            outbound.takeover()
    except Exception:
        log.exception("an upgraded connection failed")
    finally:
        if isinstance(outbound.body, ClosingBody):
            outbound.body.close()


def _respond_by_sock(outbound: Outbound, channel: "SockChannel | None") -> Response:
    """Respond as `respond` does, but leave the handshake of a WebSocket to Flask-Sock."""
    if outbound.takeover is None or channel is None:
        return respond(outbound)
    return channel.serve(partial(take_over, outbound))
