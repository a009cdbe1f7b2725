"""A request for a page of a signed-in person: its form, its result, and the operations of a page."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urlencode

import msgspec
import orjson
from marshmallow import fields as schema_fields
from msgspec import Struct, field
from msgspec.structs import replace

from gateway.clock import to_datetime
from gateway.errors import GatewayError
from gateway.surfaces.console.choice_bar import ChoiceField, build_bar, find_kept_address, read_visible
from gateway.surfaces.console.kept_choices import keep_choices
from gateway.surfaces.console.pages import check_page, page, redirect
from gateway.surfaces.console.visits import as_page, make_csrf, pressed, require_visitor, submitted_by_visitor
from gateway.surfaces.management.managed_operation import Action, ManagedOperation
from gateway.surfaces.management.table import OPERATIONS
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.surfaces.web.http_responses import json_reply
from gateway.worker.services import Services

# Operations of the management API, run for a page: the page validates, permits and changes nothing itself.
#
# A page is one more client of the management API. It names the row of the table, and gets what a program gets as
# JSON.

JSON = {"content-type": "application/json"}
ROWS = {f"{row.method} {row.path}": row for row in OPERATIONS if isinstance(row, ManagedOperation)}


class ManagementCall:
    """An operation of the management API that a page runs, named like "PATCH /keys/api/<key_id>"."""

    def __init__(self, name: str) -> None:
        action = ROWS[name].action
        assert action is not None
        self._action: Action[Any] = action

    @property
    def members(self) -> Mapping[str, schema_fields.Field[Any]]:
        """Return the members of the body, with their schemas."""
        schema: Any = self._action.request
        return schema._declared_fields if schema else {}

    def run(self, visitor: Visitor, inbound: Inbound, fields: dict[str, Any] | None = None, **path: str) -> Any:
        """Return the content of the answer as JSON values. `fields` are the members of the body or of the query, `path`
        the variables of the path. Raises the errors of the operation."""
        given = fields or {}
        query = urlencode(given)
        call = replace(inbound, params=path, query=query, headers=JSON, body=orjson.dumps(given))
        return orjson.loads(msgspec.json.encode(self._action.run(visitor, call)))


CSRF_SUBJECT = "console"


@runtime_checkable
class OfOrganization(Protocol):
    """The organization of a page, with the field that chooses another one."""

    @property
    def field(self) -> ChoiceField: ...


class PageCall(Struct, frozen=True):
    """A visitor's request. After an action, `form` holds its fields, and `message` or `error` its result."""

    visitor: Visitor
    inbound: Inbound
    form: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    error: GatewayError | None = None

    @property
    def services(self) -> Services:
        return self.visitor.services

    @property
    def params(self) -> Mapping[str, str]:
        return self.inbound.params

    @property
    def arguments(self) -> dict[str, str]:
        """Return the parameters of the query that have a value."""
        return {name: value for name, value in self.inbound.arguments().items() if value}

    def run(self, call: ManagementCall, fields: dict[str, Any] | None = None, /, **path: str) -> Any:
        """Return the answer of an operation of the management API as JSON values. Raises its errors."""
        return call.run(self.visitor, self.inbound, fields, **path)

    def page(self, template: str, title: str, **values: Any) -> Outbound:
        """Return a page with the result of the action. Links lead to other pages about the same."""
        choice = values.get("choice")
        if isinstance(choice, OfOrganization) and "bar" not in values:
            values["bar"] = build_bar(self.inbound, choice.field)
        response = page(
            self.inbound,
            template,
            title,
            error=self.error,
            visitor=self.visitor,
            message=self.message,
            csrf=make_csrf(self.services, self.visitor, CSRF_SUBJECT),
            typed=TypedFields(self.form),
            wide=True,
            **values,
        )
        response.headers += keep_choices(self.inbound, read_visible(self.inbound, self.visitor))
        return response


class TypedFields:
    """The fields of a refused form, which shows again what the person typed."""

    def __init__(self, form: Mapping[str, str]) -> None:
        self._form = form

    def __getitem__(self, name: str) -> str:
        return self._form.get(name, "")


PageView = Callable[[PageCall], Outbound]
# An action returns the message of its success, or another page than the one it was started from.
PageAction = Callable[[PageCall], str | Outbound]


def page_operations(
    path: str, show: PageView, actions: Mapping[str, PageAction] | None = None
) -> tuple[Operation, ...]:
    """Return the operations of a page: `show` and, by the names of their buttons, its actions. The page is shown again
    after an action, with its message or its error."""

    def get(services: Services, inbound: Inbound) -> Outbound:
        visitor = require_visitor(services, inbound, _own_url(inbound))
        check_page(visitor, inbound.path)
        address = find_kept_address(inbound, visitor)
        if address:
            return redirect(inbound, address)
        with services.background.reports.turn(visitor.user_id):
            return show(PageCall(visitor, inbound))

    def post(services: Services, inbound: Inbound) -> Outbound:
        visitor, form = submitted_by_visitor(services, inbound, _own_url(inbound), CSRF_SUBJECT)
        check_page(visitor, inbound.path)
        action = pressed(actions or {}, form)
        call = PageCall(visitor, inbound, form)
        try:
            result = action(call)
            visitor.known.clear()
        except GatewayError as error:
            if error.blame != "caller":
                raise
            return show(replace(call, error=error))
        if isinstance(result, Outbound):
            return result
        return show(PageCall(visitor, inbound, message=result))

    get.__doc__ = post.__doc__ = show.__doc__
    operations = [Operation("GET", path, as_page(get))]
    if actions:
        operations.append(Operation("POST", path, as_page(post), body="form"))
    return tuple(operations)


def show_instead(call: PageCall, path: str, show: PageView, message: str) -> Outbound:
    """Return the page at `path` with a message, after an action that removed its own page."""
    inbound = replace_path(call.inbound, path)
    response = show(PageCall(call.visitor, inbound, message=message))
    response.headers.append(("HX-Replace-Url", inbound.base_url + path))
    return response


def replace_path(inbound: Inbound, path: str) -> Inbound:
    """Return the request as one for another page, without a query."""
    return Inbound("GET", path, inbound.headers, base_url=inbound.base_url, peer=inbound.peer)


def _own_url(inbound: Inbound) -> str:
    if inbound.query:
        return f"{inbound.path}?{inbound.query}"
    return inbound.path


# Keys that a page makes for its own calls: they expire after an hour and are in the memory of the page only.

LIFE = timedelta(hours=1)
LIST = ManagementCall("GET /keys/api")
CREATE = ManagementCall("POST /keys/api")
DELETE = ManagementCall("DELETE /keys/api/<key_id>")


def make_short_lived_key(services: Services, inbound: Inbound, page: str, name: str, kind: str) -> Outbound:
    """Create a key of this name and kind in the project of a form of `page`, and delete the visitor's expired ones. The
    answer is JSON. Raises Forbidden for a form that comes from elsewhere."""
    visitor, form = submitted_by_visitor(services, inbound, page, CSRF_SUBJECT)
    call = PageCall(visitor, inbound)
    for key in call.run(LIST, {"filter": "mine"})["apiKeys"]:
        if key["description"] == name and key["state"] == "expired":
            call.run(DELETE, key_id=key["id"])
    expiry = (to_datetime(services.clock.now_us()) + LIFE).isoformat()
    fields = {"projectId": form.get("project", ""), "description": name, "kind": kind, "expiresAt": expiry}
    made = call.run(CREATE, fields)
    return json_reply({"token": made["token"], "expiresAt": made["expiresAt"]}, inbound.shown_id)
