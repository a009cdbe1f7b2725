"""Checks that every page runs before it shows or does anything: who is visiting, and whether a form came from our own
page."""

import hmac
from collections.abc import Callable, Mapping
from typing import TypeVar
from urllib.parse import urlencode

from gateway.accounts.tokens import hash_token
from gateway.errors import Forbidden, GatewayError, InvalidRequest, Unauthenticated
from gateway.surfaces.console.pages import AFTER_SIGN_IN, page, read_form, redirect
from gateway.surfaces.http import Handler, Inbound, Outbound
from gateway.surfaces.visitor import Visitor, check_origin, token_of, visit
from gateway.worker.services import Services

LOGIN = "/connect/login"
FormFields = dict[str, str]
T = TypeVar("T")


class SignInFirst(Exception):
    """Nobody is signed in; `target` is our path to continue at after sign-in."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.target = target


def as_page(view: Handler) -> Handler:
    """The view with errors shown as pages, and the sign-in in its place where that comes first."""

    def handle(services: Services, inbound: Inbound) -> Outbound:
        try:
            return view(services, inbound)
        except SignInFirst as missing:
            return redirect(inbound, login_path(missing.target))
        except GatewayError as error:
            reply = page(inbound, "done.html", "That did not work", error.status, text=error.message)
            if error.retry_after is not None:
                reply.headers.append(("Retry-After", str(max(1, round(error.retry_after)))))
            return reply

    handle.__doc__ = view.__doc__
    return handle


def login_path(target: str = AFTER_SIGN_IN, **fields: str) -> str:
    """The path of the sign-in that goes on at `target`; `fields` fill its form."""
    query = ({} if target == AFTER_SIGN_IN else {"redirect": target}) | fields
    if query:
        return f"{LOGIN}?{urlencode(query)}"
    return LOGIN


def find_visitor(services: Services, inbound: Inbound) -> Visitor | None:
    """Who the browser's cookie stands for; None when nobody is signed in."""
    token, by_cookie = token_of(inbound)
    if not by_cookie:
        return None
    try:
        return visit(services, token, inbound.method)
    except (Unauthenticated, Forbidden):
        return None


def require_visitor(services: Services, inbound: Inbound, target: str) -> Visitor:
    """Who is signed in. SignInFirst, to go on at `target`."""
    visitor = find_visitor(services, inbound)
    if visitor is None:
        raise SignInFirst(target)
    return visitor


def submitted(services: Services, inbound: Inbound) -> FormFields:
    """The fields of a form that a page of ours sent. Forbidden, InvalidRequest."""
    check_origin(services, inbound, required=True)
    return read_form(inbound)


def submitted_by_visitor(
    services: Services, inbound: Inbound, target: str, subject: Callable[[FormFields], str]
) -> tuple[Visitor, FormFields]:
    """Who sent a form that was made for them and for `subject`, and its fields. SignInFirst, to go on at `target`;
    Forbidden, InvalidRequest."""
    check_origin(services, inbound, required=True)
    visitor = require_visitor(services, inbound, target)
    given = read_form(inbound)
    check_csrf(services, visitor, subject(given), given)
    return visitor, given


def pressed(buttons: Mapping[str, T], given: FormFields, name: str = "action") -> T:
    """What the pressed one of a page's `buttons` stands for; `name` is that of them all. InvalidRequest."""
    try:
        return buttons[given.get(name, "")]
    except KeyError:
        raise InvalidRequest("Choose one of the buttons of this page.") from None


def make_csrf(services: Services, visitor: Visitor | None, subject: str) -> str:
    """What a form must bring back: bound to the session, where there is one, and to what is decided."""
    if visitor is None:
        session = "nobody"
    else:
        session = visitor.session.id
    return hash_token(f"csrf\n{session}\n{subject}", services.store.secrets.hash_keys[0])


def check_csrf(services: Services, visitor: Visitor | None, subject: str, given: FormFields) -> None:
    """Forbidden unless the form was made for this session and subject."""
    if not hmac.compare_digest(make_csrf(services, visitor, subject).encode(), given.get("csrf", "").encode()):
        raise Forbidden("This form is out of date; open the page again.", code="untrusted_origin")
