"""`/connect/invitation`: shows an invited person who invited them to what, and lets them join with their account or a
new one."""

import hashlib
import re
from typing import Any

from gateway.accounts.invitations import PREFIX, InvitationInfo
from gateway.accounts.passwords import SHORTEST
from gateway.clock import to_datetime
from gateway.errors import GatewayError, Gone, NotFound
from gateway.surfaces.console.pages import page, redirect
from gateway.surfaces.console.sign_in_pages import SIGN_OUT
from gateway.surfaces.console.visits import as_page, check_csrf, find_visitor, make_csrf, submitted
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.visitor import read_cookie, write_cookie
from gateway.worker.services import Services

PATH = "/connect/invitation"
TITLE = "Invitation"
COOKIE = "llmgateway.invitation"
LIFE_S = 3600
TOKEN = re.compile(re.escape(PREFIX) + r"[A-Za-z0-9_-]{8,128}")
HIDDEN = ("Referrer-Policy", "no-referrer")

UNOPENED = "Open this page by the link that you were sent; it stays open for an hour."
UNKNOWN = "This link leads to no invitation. Copy the whole link, or ask who sent it for another one."
ENDED = {
    "accepted": "This invitation was used already. If that was you, sign in; if not, ask who invited you for another.",
    "revoked": "This invitation was taken back, maybe for a newer one: look for that, or ask who invited you.",
    "expired": "This invitation is over: it was good for a week. Ask who invited you for another one.",
}
MINE = "You accepted this invitation already: you are a member of {}."


def show(services: Services, inbound: Inbound) -> Outbound:
    """What the invitation is for, with what its holder can do about it.

    A link carries its token in the query. It is moved into a cookie that no script sees, and the page is shown under
    an address without it: neither the history nor a Referer nor somebody's screen gives it away.
    """
    given = inbound.arguments().get("token", "")
    if given:
        if not TOKEN.fullmatch(given):
            raise NotFound(UNKNOWN)
        return redirect(inbound, PATH, [HIDDEN, write_cookie(inbound, given, LIFE_S, COOKIE)])
    token, info = _open(services, inbound)
    return _page(services, inbound, token, info)


def accept(services: Services, inbound: Inbound) -> Outbound:
    """Join with the account that is signed in, else make one from the form and sign it in."""
    given = submitted(services, inbound)
    token, info = _open(services, inbound)
    visitor = find_visitor(services, inbound)
    check_csrf(services, visitor, _subject(token), given)
    headers = [write_cookie(inbound, "", 0, COOKIE)]
    try:
        if visitor is not None:
            services.management.accept_invitation(token, visitor.user_id)
        else:
            name = given.get("name", "")
            password = given.get("password", "")
            headers.append(
                write_cookie(inbound, services.management.sign_up(token, name, password, inbound.peer).token)
            )
    except GatewayError as error:
        if error.blame != "caller":
            raise
        return _page(services, inbound, token, info, error, given.get("name", ""))
    answer = page(
        inbound, "joined.html", "Welcome", organization=info.organization_name, role=info.role, email=info.email
    )
    answer.headers.extend(headers)
    return answer


def _open(services: Services, inbound: Inbound) -> tuple[str, InvitationInfo]:
    """The token of the browser and its invitation, which can be accepted. NotFound, Gone, RateLimited."""
    token = read_cookie(inbound, COOKIE)
    if not token:
        raise NotFound(UNOPENED)
    try:
        info = services.management.open_invitation(token, inbound.peer)
    except NotFound:
        raise NotFound(UNKNOWN) from None
    if info.status in ENDED:
        if info.status == "accepted":
            visitor = find_visitor(services, inbound)
        else:
            visitor = None
        mine = visitor is not None and visitor.session.email == info.email
        raise Gone(MINE.format(info.organization_name) if mine else ENDED[info.status])
    return token, info


def _page(
    services: Services,
    inbound: Inbound,
    token: str,
    info: InvitationInfo,
    error: GatewayError | None = None,
    name: str = "",
) -> Outbound:
    """The invitation with the one thing to do: accept, change the account, sign in, or make an account."""
    visitor = find_visitor(services, inbound)
    shown: dict[str, Any] = {
        "organization": info.organization_name,
        "inviter": info.inviter or "whoever runs this installation",
        "role": info.role,
        "email": info.email,
        "until": to_datetime(info.expires_at_us).strftime("%d %B %Y"),
        "csrf": make_csrf(services, visitor, _subject(token)),
        "path": PATH,
        "error": error,
    }
    if visitor is None and info.has_account:
        return page(inbound, "invitation_sign_in.html", TITLE, **shown)
    if visitor is None:
        return page(inbound, "invitation_sign_up.html", TITLE, **shown, name=name, shortest=str(SHORTEST))
    if visitor.session.email == info.email:
        return page(inbound, "invitation.html", TITLE, **shown)
    shown["csrf"] = make_csrf(services, visitor, SIGN_OUT)
    return page(inbound, "invitation_other.html", TITLE, 403, **shown, own=visitor.session.email)


def _subject(token: str) -> str:
    """What the form is for: this invitation."""
    return "invitation " + hashlib.sha256(token.encode()).hexdigest()


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", PATH, as_page(show)),
    Operation("POST", PATH, as_page(accept), body="form"),
)
