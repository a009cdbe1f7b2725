"""A row of the management table: its path, request, answer, who may call it, its audit entry and its commands."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import msgspec

from gateway.admin.account_changes import Management
from gateway.control.version import Control
from gateway.dialects import management_errors as dialect
from gateway.errors import InvalidRequest
from gateway.store.database import Database
from gateway.surfaces.http import About, ErrorFormat, Inbound, Operation, Outbound
from gateway.surfaces.http_responses import json_reply
from gateway.surfaces.management.answers import DoneAnswer
from gateway.surfaces.management.who import Who
from gateway.surfaces.shapes import shape
from gateway.surfaces.validation_schemas import read_body, read_query
from gateway.surfaces.visitor import ADDING_METHODS, Visitor, answer_visitor
from gateway.worker.services import Services

T = TypeVar("T")
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


@dataclass(frozen=True, slots=True)
class ManagedCall(Generic[T]):
    """A permitted call. `subject` is what the path names, as the row's `who` found it; `fields` are the validated
    members of the body or query."""

    visitor: Visitor
    inbound: Inbound
    subject: T
    fields: dict[str, Any]

    @property
    def params(self) -> dict[str, str]:
        """Return the variables of the path."""
        return self.inbound.params

    @property
    def services(self) -> Services:
        return self.visitor.services

    @property
    def management(self) -> Management:
        return self.visitor.services.management

    @property
    def database(self) -> Database:
        return self.visitor.services.store.database

    @property
    def stores(self) -> tuple[Database, Control]:
        """Return the first two arguments of the functions that change accounts."""
        store = self.visitor.services.store
        return store.database, store.control

    @property
    def actor(self) -> str:
        """Return the actor of the audit entry."""
        return self.visitor.user_id


@dataclass(frozen=True, slots=True)
class Action(Generic[T]):
    """The work of an operation: checks, the view, and the form of its response. The view returns the content: an
    answer, a list of answers, None for the `message` only, or the response of a download. The JSON has the content as
    its member `inside`, beside the message."""

    view: Callable[[ManagedCall[T]], Any]
    who: Who[T]
    request: type | None
    query: type | None
    inside: str
    message: str
    success: int
    some: bool  # at least one field is required

    def run(self, visitor: Visitor, inbound: Inbound) -> Any:
        """Return the content for a visitor. Raises InvalidRequest, NotFound, Forbidden."""
        fields: dict[str, Any] = {}
        if self.request is not None:
            fields = read_body(self.request, inbound)
            if self.some and not fields:
                raise InvalidRequest("Give at least one thing to change.")
        elif self.query is not None:
            fields = read_query(self.query, inbound)
        subject = self.who.find(visitor, {**fields, **inbound.params})
        content = self.view(ManagedCall(visitor, inbound, subject, fields))
        if content is None and not self.inside:
            return DoneAnswer(self.message)
        return content

    def respond(self, visitor: Visitor, inbound: Inbound) -> Outbound:
        """Return the response to a visitor."""
        content = self.run(visitor, inbound)
        if isinstance(content, Outbound):
            return content
        if self.inside:
            content = {self.inside: content}
            if self.message:
                content = {"message": self.message, **content}
        return json_reply(msgspec.json.encode(content), inbound.shown_id, self.success)

    def shape(self, answer: Any) -> Any:
        """Return the schema of the response with this content."""
        if self.inside:
            members = {self.inside: answer}
            if self.message:
                members = {"message": "string", **members}
            return shape(**members)
        if answer is None and self.message:
            return DoneAnswer
        return answer


@dataclass(frozen=True, slots=True)
class ManagedOperation(Operation):
    """An operation for signed-in visitors. `audit` are the actions of its audit entries, `commands` the commands of
    `./manage` that run it (operator/derived_commands.py)."""

    action: Action[Any] | None = None
    audit: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


def managed(
    method: str,
    path: str,
    view: Callable[[ManagedCall[T]], Any],
    summary: str,
    *,
    tag: str,
    who: Who[T],
    request: type | None = None,
    query: type | None = None,
    answer: Any = None,
    inside: str = "",
    message: str = "",
    success: int = 200,
    errors: tuple[int, ...] = (),
    audit: str | tuple[str, ...] = (),
    commands: tuple[str, ...] = (),
    media: str = "application/json",
    also: tuple[str, ...] = (),
) -> ManagedOperation:
    """Return a row of the table. `answer` is the type of the content: an answer struct, a list with one, or a JSON
    schema."""
    action = Action(view, who, request, query, inside, message, success, method == "PATCH")
    actions = (audit,) if isinstance(audit, str) else audit
    handler = answer_visitor(action.respond)
    handler.__doc__ = _describe(view.__doc__ or "", who, actions)
    adding = (429,) if method in ADDING_METHODS else ()
    statuses = {*ALWAYS, *WITH_SESSION, *errors, *adding, *(WITH_BODY if method != "GET" else ())}
    refused = tuple(sorted(statuses))
    schema = action.shape(answer)
    about = About(summary, tag, request, query, schema, (success,), refused, "session", media, also=also)
    body: Literal["json", "none"] = "json" if request else "none"
    return ManagedOperation(
        method, path, handler, body=body, about=about, action=action, audit=actions, commands=commands
    )


def _describe(text: str, who: Who[Any], audit: tuple[str, ...]) -> str:
    parts = [text.strip(), who.text]
    if audit:
        parts.append(f"Audit entry: {' or '.join(audit)}.")
    return " ".join(parts)


def public(
    method: str,
    path: str,
    handler: Callable[[Services, Inbound], Outbound],
    summary: str,
    *,
    request: type | None = None,
    answer: Any = None,
    errors: tuple[int, ...] = (),
) -> Operation:
    """Return a sign-in operation, which needs no authentication."""
    statuses = {*ALWAYS, *errors, *((403, 413, 415) if method != "GET" else ())}
    about = About(summary, "Sign-in", request, None, answer, (200,), tuple(sorted(statuses)), "none")
    return Operation(method, path, handler, SIGN_IN, body="json" if request else "none", about=about)
