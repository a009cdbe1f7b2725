"""Helpers for the management tables: an operation together with its API description."""

from collections.abc import Callable
from typing import Any, Literal

from gateway.dialects import management_errors as dialect
from gateway.errors import InvalidRequest
from gateway.surfaces.http import About, ErrorFormat, Inbound, Operation, Outbound
from gateway.surfaces.visitor import ADDING_METHODS, View, signed_in
from gateway.worker.services import Services

Access = Literal["session", "none"]
SIGN_IN = ErrorFormat(
    "sign-in",
    dialect.sign_in_error_body,
    {
        "type": "object",
        "required": ["error", "message"],
        "properties": {"error": {"type": "string"}, "message": {"type": "string"}},
    },
)
ALWAYS = (400, 503)
WITH_SESSION = (401, 403, 404)
WITH_BODY = (409, 413, 415)


def managed(
    method: str,
    path: str,
    view: View,
    summary: str,
    *,
    tag: str,
    request: type | None = None,
    query: type | None = None,
    answer: dict[str, Any] | None = None,
    success: int = 200,
    errors: tuple[int, ...] = (),
    media: str = "application/json",
    also: tuple[str, ...] = (),
) -> Operation:
    """An operation for signed-in visitors."""
    adding = (429,) if method in ADDING_METHODS else ()
    statuses = {*ALWAYS, *WITH_SESSION, *errors, *adding, *(WITH_BODY if method != "GET" else ())}
    refused = tuple(sorted(statuses))
    about = About(summary, tag, request, query, answer, (success,), refused, "session", media, also=also)
    return Operation(method, path, signed_in(view), body="json" if request else "none", about=about)


def public(
    method: str,
    path: str,
    handler: Callable[[Services, Inbound], Outbound],
    summary: str,
    *,
    request: type | None = None,
    answer: dict[str, Any] | None = None,
    errors: tuple[int, ...] = (),
) -> Operation:
    """Return a sign-in operation, which needs no authentication."""
    statuses = {*ALWAYS, *errors, *((403, 413, 415) if method != "GET" else ())}
    about = About(summary, "Sign-in", request, None, answer, (200,), tuple(sorted(statuses)), "none")
    return Operation(method, path, handler, SIGN_IN, body="json" if request else "none", about=about)


def require_some(values: dict[str, Any]) -> dict[str, Any]:
    """InvalidRequest unless there is something to change."""
    if not values:
        raise InvalidRequest("Give at least one thing to change.")
    return values
