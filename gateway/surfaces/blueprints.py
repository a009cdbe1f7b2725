"""Operations as Flask blueprints: a thin adaptor around the same handlers that the express lane calls."""

from collections.abc import Callable, Iterable

from flask import Blueprint, Response, request

from gateway.errors import GatewayError
from gateway.services import Services
from gateway.surfaces import replies
from gateway.surfaces.exchange import Inbound, Operation, Outbound
from gateway.surfaces.wsgi import read_inbound


def guard(services: Services, operation: Operation) -> Callable[[Inbound], Outbound]:
    """The handler with every error turned into an answer of its dialect; nothing escapes."""
    handler, dialect = operation.handler, operation.dialect
    count, name = services.counters.add, f"{operation.method} {operation.path}"

    def handle(inbound: Inbound) -> Outbound:
        try:
            outbound = handler(services, inbound)
        except GatewayError as error:
            outbound = replies.error_reply(error, dialect, inbound.shown_id)
        except Exception as error:
            outbound = replies.crash_reply(inbound, error, dialect, inbound.shown_id)
        count("requests_total", (name, str(outbound.status)))
        return outbound

    return handle


def blueprint(name: str, services: Services, operations: Iterable[Operation]) -> Blueprint:
    """A blueprint that answers `operations`."""
    made = Blueprint(name, __name__)
    for operation in operations:
        made.add_url_rule(
            operation.path,
            endpoint=f"{operation.method} {operation.path}".replace(".", "_"),
            view_func=_view(services, operation),
            methods=[operation.method],
            provide_automatic_options=False,
        )
    return made


def _view(services: Services, operation: Operation) -> Callable[..., Response]:
    handle = guard(services, operation)
    server = services.settings.server
    max_body = server.max_body_mb << 20

    def view(**params: str) -> Response:
        try:
            inbound = read_inbound(
                request.environ,
                params,
                max_body=max_body,
                ip_header=server.client_ip_header,
                public_url=server.public_url,
            )
        except GatewayError as error:
            return respond(replies.error_reply(error, operation.dialect))
        return respond(handle(inbound))

    return view


def respond(outbound: Outbound) -> Response:
    """The Flask response of an Outbound; an iterator body is sent item by item."""
    response = Response(outbound.body, status=outbound.status, direct_passthrough=not isinstance(outbound.body, bytes))
    response.headers.clear()
    response.headers.extend(outbound.headers)
    return response
