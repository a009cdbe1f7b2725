"""Operations as Flask blueprints: a thin adapter around the same handlers that the express lane calls."""

import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from flask import Blueprint, Flask, Response, request
from werkzeug.routing import Map, PathConverter, Rule

from gateway.errors import GatewayError
from gateway.runtime.lazy_import import LazyImport
from gateway.surfaces.early_auth import EarlyAuth
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.http import Inbound, Operation, Outbound, Surface
from gateway.surfaces.web.operation_guard import guard_among, name_of
from gateway.surfaces.web.origins import Proxies, make_proxies
from gateway.surfaces.web.request_targets import PATH_MODEL, set_model
from gateway.surfaces.web.wsgi import REQUEST_ID, read_base_url, read_headers, read_inbound
from gateway.telemetry.request_observers import ClosingBody
from gateway.worker.services import Services

if TYPE_CHECKING:
    from gateway.surfaces.web import sock_upgrades as sock_upgrades_module
    from gateway.surfaces.web.sock_upgrades import SockChannel
else:
    sock_upgrades_module = LazyImport("gateway.surfaces.web.sock_upgrades")

log = logging.getLogger(__name__)

OWN_ID = re.compile(r"[0-9a-f]{32}")


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
                handle = guard_among(services, operation, choices)
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
        if model := request.environ.get(PATH_MODEL):
            inbound.body = set_model(inbound.body, model)
        if operation.upgrades and inbound.channel is None:
            inbound.channel = sock_upgrades_module.channel_of(request.environ)
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
            auth_module.caller_of(services, inbound)
    end = services.telemetry.requests.of(name_of(operation), operation.paid)
    end(inbound, error.status, services.clock.monotonic(), error)
    errors = operation.errors or http_responses_module.OPENAI
    if errors.convert_error is not None:
        error = errors.convert_error(error, inbound)
    return http_responses_module.error_reply(error, errors, shown_id)


def respond(outbound: Outbound) -> Response:
    """Return the Flask response of an Outbound; an iterator body is sent item by item."""
    if outbound.takeover is not None:
        return ConnectionTakenOver(outbound)
    response = Response(outbound.body, status=outbound.status, direct_passthrough=not isinstance(outbound.body, bytes))
    response.headers.clear()
    response.headers.extend(outbound.headers)
    return response


class ConnectionTakenOver(Response):
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
