"""A row of the management table: its path, request, answer, who may call it, its audit entry and its commands. Pages of
the long lists of answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType, structs

from gateway.accounts import client_ids
from gateway.accounts.client_ids import ClientIdClaim
from gateway.admin.account_changes import Management
from gateway.control.version import Control
from gateway.dialects import error_details as dialect
from gateway.errors import Conflict, InvalidRequest, NotFound
from gateway.store.database import Database, ListSlice
from gateway.surfaces.management.access_groups import AccessGroup, ManagementScope
from gateway.surfaces.management.answers import DoneAnswer
from gateway.surfaces.visitors.validation_schemas import Body, QueryInteger, TextField, read_body, read_query
from gateway.surfaces.visitors.visitor import ADDING_METHODS, Visitor, answer_visitor
from gateway.surfaces.web.answer_structs import describe_answer
from gateway.surfaces.web.http import About, Access, ErrorFormat, HeaderParameter, Inbound, Operation, Outbound
from gateway.surfaces.web.http_responses import json_reply
from gateway.worker.services import Services

# Pages of the management API's long lists: `limit` and `cursor` of the query, `next` of the answer.

Row = TypeVar("Row")
MAX_PAGE_SIZE = 1000
PAGED = (
    "With `limit`, one page: `next` is the `cursor` of the following one, null at the end. Without it, the whole list."
)

find_id = attrgetter("id")


class ListPageQuery(Body):
    limit = QueryInteger(1, MAX_PAGE_SIZE, about="Maximum number of entries; default: all.")
    cursor = TextField(1, 80, about="`next` of the previous page.")


class ListPage:
    """The requested page of a list: the whole list without `limit` and `cursor`. `next` is the cursor of
    the following page once the rows were read: None at the end, UNSET for a whole list."""

    __slots__ = ("_asked", "next")

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._asked = ListSlice(fields.get("cursor", ""), fields.get("limit", 0))
        self.next: str | UnsetType | None = UNSET

    def read(self, read: Callable[[ListSlice], list[Row]], most: int = 0) -> list[Row]:
        """Return the rows of the page from a query of a slice. The query gets one row more than the page shows, which
        shows whether another page follows. Without a limit a page has `most` rows, 0: all."""
        asked = self._asked
        limit = asked.limit or most
        rows = read(asked._replace(limit=limit + 1 if limit else 0))
        if most and asked == ListSlice() and len(rows) > most:
            self.next = find_id(rows[most - 1])
            return rows[:most]
        return self._end(rows, limit)

    def cut(self, rows: Sequence[Row], *, newest_first: bool = False) -> list[Row]:
        """Return the rows of the page, of a short list that is in memory. Pages are sorted by id."""
        after = self._asked.after
        if self._asked == ListSlice():
            return list(rows)
        ordered = sorted(rows, key=find_id, reverse=newest_first)
        if after:
            ordered = [row for row in ordered if (find_id(row) < after if newest_first else find_id(row) > after)]
        return self._end(ordered, self._asked.limit)

    def _end(self, rows: list[Row], limit: int) -> list[Row]:
        if self._asked == ListSlice():
            return rows
        self.next = None
        if limit and len(rows) > limit:
            rows = rows[:limit]
            self.next = find_id(rows[-1])
        return rows


T = TypeVar("T")
SIGN_IN = ErrorFormat("sign-in", dialect.sign_in_error_body, describe_answer(dialect.SignInError | dialect.DeviceError))
ALWAYS = (400, 503)
WITH_SESSION = (401, 403, 404)
WITH_BODY = (409, 413, 415)
PARTIAL, NO_SUCH_RANGE = 206, 416
BLOCKED = 410  # the service account of a blocked organization
# Attempts of a creation with a chosen id, while other requests create and delete the object.
CREATION_TRIES = 3


@dataclass(frozen=True, slots=True)
class ManagedCall(Generic[T]):
    """A permitted call. `subject` is what the path names, as the row's `who` found it; `fields` are the validated
    members of the body or query. `claim` is the id that the client chose for what it creates, None without. `page` is
    the page of a list that the client asked for."""

    visitor: Visitor
    inbound: Inbound
    subject: T
    fields: dict[str, Any]
    claim: ClientIdClaim | None = None
    page: ListPage = field(default_factory=lambda: ListPage({}))

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


class Creating(Body):
    """The body of an operation that creates an object, idempotently if the client chooses an id for it."""

    clientId = TextField(
        1, 80, about="Your id for the new object: a repeated request answers the first object, other content gives 409."
    )


@dataclass(frozen=True, slots=True)
class Creation(Generic[T]):
    """The creation of an object: its kind, and the content of the answer for an existing one. `show` raises
    NotFound for an object that exists no longer."""

    kind: str
    show: Callable[[ManagedCall[T], str], Any]


@dataclass(frozen=True, slots=True)
class Action(Generic[T]):
    """The work of an operation: checks, the view, and the form of its response. The view returns the content: an
    answer, a list of answers, None for the `message` only, or the response of a download. `wrapper` is the type of the
    JSON that has the content as its member `inside`, and beside it `next` if the list has pages; None where the content
    is the whole answer."""

    view: Callable[[ManagedCall[T]], Any]
    who: AccessGroup[T]
    request: type | None
    query: type | None
    inside: str
    message: str
    success: int
    some: bool  # at least one field is required
    creation: Creation[T] | None = None
    wrapper: type[msgspec.Struct] | None = None

    @property
    def has_pages(self) -> bool:
        """Return whether the operation answers pages of a list."""
        return _has_pages(self.query)

    def run(self, visitor: Visitor, inbound: Inbound) -> Any:
        """Return the content for a visitor. Raises InvalidRequest, NotFound, Forbidden."""
        return self._perform(visitor, inbound)[0]

    def _perform(self, visitor: Visitor, inbound: Inbound) -> tuple[Any, int, ListPage]:
        """Return the content, the status, and the page of a list."""
        fields: dict[str, Any] = {}
        if self.request is not None:
            fields = read_body(self.request, inbound)
            if self.some and not fields:
                raise InvalidRequest("Give at least one field to change.")
        elif self.query is not None:
            fields = read_query(self.query, inbound)
        subject = self.who.find(visitor, {**fields, **inbound.params})
        call = ManagedCall(visitor, inbound, subject, fields, page=ListPage(fields if self.has_pages else {}))
        if self.creation is not None and fields.get("clientId"):
            return *self._create_once(call, self.creation), call.page
        content = self.view(call)
        if content is None and not self.inside:
            content = DoneAnswer(self.message)
        return content, self.success, call.page

    def _create_once(self, call: ManagedCall[T], creation: Creation[T]) -> tuple[Any, int]:
        """Return the content and status of a creation with a chosen id. Raises Conflict (code client_id_conflict) if
        the id belongs to an object that was created with other content."""
        content = dict(call.fields)
        subject: Any = call.subject
        organization_id = getattr(subject, "organization_id", subject)
        claim = client_ids.make_claim(
            organization_id,
            creation.kind,
            content.pop("clientId"),
            content,
            call.services.store.secrets.hash_keys,
        )
        for _ in range(CREATION_TRIES):
            known = client_ids.find(call.database, claim)
            if known is not None:
                try:
                    shown = creation.show(call, known.object_id)
                except NotFound:
                    claim = structs.replace(claim, replaces=known.object_id)
                else:
                    known.check(claim)
                    return shown, 200
            try:
                return self.view(replace(call, claim=claim)), self.success
            except client_ids.ClientIdTaken:
                continue
        raise Conflict("Another request creates an object with this clientId; try again.", code="client_id_conflict")

    def respond(self, visitor: Visitor, inbound: Inbound) -> Outbound:
        """Return the response to a visitor."""
        content, status, page = self._perform(visitor, inbound)
        if isinstance(content, Outbound):
            return content
        if self.wrapper is not None:
            beside = {"next": page.next} if self.has_pages else {}
            content = self.wrapper(**{self.inside: content}, **beside)
        return json_reply(msgspec.json.encode(content), inbound.shown_id, status)


@dataclass(frozen=True, slots=True)
class ManagedOperation(Operation):
    """An operation for signed-in visitors. `scope` is what a service account needs for it ("": people only), `audit`
    are the actions of all audit entries that it may leave, `commands` the commands of `./manage` that run it
    (operator/derived_commands.py)."""

    action: Action[Any] | None = None
    scope: ManagementScope = ""
    audit: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


def managed(
    method: str,
    path: str,
    view: Callable[[ManagedCall[T]], Any],
    summary: str,
    *,
    tag: str,
    who: AccessGroup[T],
    scope: ManagementScope = "",
    request: type | None = None,
    query: type | None = None,
    schema: dict[str, Any] | None = None,
    inside: str = "",
    message: str = "",
    success: int = 200,
    errors: tuple[int, ...] = (),
    audit: str | tuple[str, ...] = (),
    commands: tuple[str, ...] = (),
    media: str = "application/json",
    also: tuple[str, ...] = (),
    creates: Creation[T] | None = None,
    ranged: HeaderParameter | None = None,
) -> ManagedOperation:
    """Return a row of the table. The answer is described by the type that the view returns, or by `schema` where that
    type does not name all members. `creates` makes the operation idempotent for clients that choose an id. `ranged` is
    the header with which callers ask for a part of a download."""
    content = view.__annotations__["return"]
    wrapper = _wrapper(inside, message, content, _has_pages(query)) if inside else None
    action = Action(view, who, request, query, inside, message, success, method == "PATCH", creates, wrapper)
    actions = (audit,) if isinstance(audit, str) else audit
    handler = answer_visitor(action.respond, scope)
    text = f"{view.__doc__ or ''} {PAGED if _has_pages(query) else ''}"
    handler.__doc__ = _describe(text, who, scope, actions)
    statuses = {*ALWAYS, *WITH_SESSION, *errors, *(WITH_BODY if method != "GET" else ())}
    if method in ADDING_METHODS:
        statuses.add(429)
    if scope:
        statuses.add(BLOCKED)
    refused = tuple(sorted(statuses))
    answer = schema or _describe_content(content, wrapper)
    successes = (success,) if creates is None or success == 200 else (200, success)
    if ranged is not None:
        successes, refused = (success, PARTIAL), (*refused, NO_SUCH_RANGE)
    headers = () if ranged is None else (ranged,)
    about = About(
        summary, tag, request, query, answer, successes, refused, "session", media, also=also, headers=headers
    )
    body: Literal["json", "none"] = "json" if request else "none"
    return ManagedOperation(
        method, path, handler, body=body, about=about, action=action, scope=scope, audit=actions, commands=commands
    )


def _has_pages(query: type | None) -> bool:
    return query is not None and issubclass(query, ListPageQuery)


def _wrapper(inside: str, message: str, content: Any, has_pages: bool) -> type[msgspec.Struct]:
    """Return the type of an answer that holds the content as a member, beside the message and the next page."""
    members: list[Any] = [(inside, content)]
    if message:
        members.insert(0, ("message", str, message))
    if has_pages:
        members.append(("next", str | None | UnsetType, UNSET))
    return msgspec.defstruct("Wrapped", members, kw_only=True)


def _describe_content(content: Any, wrapper: type[msgspec.Struct] | None) -> Any:
    """Return the type or schema of an answer; None for a download, which is no JSON."""
    if wrapper is not None:
        described = describe_answer(wrapper)
        del described["title"]  # a part of the answer has a name, the answer has none
        return described
    if content is None:
        return DoneAnswer
    if content is Outbound:
        return None
    return content


def _describe(text: str, who: AccessGroup[Any], scope: str, audit: tuple[str, ...]) -> str:
    parts = [text.strip(), who.text]
    if scope:
        parts.append(f"Scope of service accounts: {scope}.")
    if audit:
        parts.append(f"Audit {'entry' if len(audit) == 1 else 'entries'}: {', '.join(audit)}.")
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
    access: Access = "none",
) -> Operation:
    """Return a sign-in operation, which needs no authentication."""
    statuses = {*ALWAYS, *errors, *((403, 413, 415) if method != "GET" else ())}
    about = About(summary, "Sign-in", request, None, answer, (200,), tuple(sorted(statuses)), access)
    return Operation(method, path, handler, SIGN_IN, body="json" if request else "none", about=about)
