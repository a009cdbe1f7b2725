"""`/console/invitation`: shows an invitation and accepts it with an existing or a new account."""

import hashlib
import re
from typing import Any

from gateway.accounts.invitations import PREFIX, InvitationInfo
from gateway.accounts.passwords import MIN_LENGTH
from gateway.clock import to_datetime
from gateway.errors import GatewayError, Gone, NotFound
from gateway.surfaces.console.pages import page, redirect
from gateway.surfaces.console.sign_in_pages import SIGN_OUT
from gateway.surfaces.console.visits import as_page, check_csrf, find_visitor, make_csrf, submitted
from gateway.surfaces.visitors.visitor import read_cookie, write_cookie
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.worker.services import Services

PATH = "/console/invitation"
TITLE = "Invitation"
COOKIE = "llmgateway.invitation"
LINK_LIFETIME_S = 3600
TOKEN = re.compile(re.escape(PREFIX) + r"[A-Za-z0-9_-]{8,128}")
NO_REFERRER = ("Referrer-Policy", "no-referrer")

UNOPENED = "Open the link in the invitation. The page stays available for an hour."
UNKNOWN = "This link is not valid. Copy the whole link, or ask the sender for a new invitation."
ENDED_INVITATIONS = {
    "accepted": "This invitation has already been accepted. Sign in, or ask the sender for a new one.",
    "revoked": "This invitation was revoked. Look for a newer invitation, or ask the sender for one.",
    "expired": "This invitation has expired; invitations are valid for a week. Ask the sender for a new one.",
}
ACCEPTED = "You have already accepted this invitation. You are a member of {}."


def show(services: Services, inbound: Inbound) -> Outbound:
    """Show the invitation with the next step for this visitor.

    The link has the token in its query. The token moves into an HttpOnly cookie, and a redirect removes it from the
    URL, because a URL appears in the browser's history, in Referer headers and on the screen.
    """
    token = inbound.arguments().get("token", "")
    if token:
        if not TOKEN.fullmatch(token):
            raise NotFound(UNKNOWN)
        return redirect(inbound, PATH, [NO_REFERRER, write_cookie(inbound, token, LINK_LIFETIME_S, COOKIE)])
    token, info = _open(services, inbound)
    return _page(services, inbound, token, info)


def accept(services: Services, inbound: Inbound) -> Outbound:
    """Join with the account that is signed in, or create an account from the form and sign it in."""
    form = submitted(services, inbound)
    token, info = _open(services, inbound)
    visitor = find_visitor(services, inbound)
    check_csrf(services, visitor, _subject(token), form)
    headers = [write_cookie(inbound, "", 0, COOKIE)]
    try:
        if visitor is not None:
            visitor.check_account_access()
            services.management.accept_invitation(token, visitor.user_id)
        else:
            name = form.get("name", "")
            password = form.get("password", "")
            session = services.management.sign_up(token, name, password, inbound.peer)
            headers.append(write_cookie(inbound, session.token))
    except GatewayError as error:
        if error.blame != "caller":
            raise
        return _page(services, inbound, token, info, error, form.get("name", ""))
    response = page(
        inbound, "joined.html", "Welcome", organization=info.organization_name, role=info.role, email=info.email
    )
    response.headers.extend(headers)
    return response


def _open(services: Services, inbound: Inbound) -> tuple[str, InvitationInfo]:
    """Return the token in the cookie and its open invitation. Raises NotFound, Gone or RateLimited."""
    token = read_cookie(inbound, COOKIE)
    if not token:
        raise NotFound(UNOPENED)
    try:
        info = services.management.open_invitation(token, inbound.peer)
    except NotFound:
        raise NotFound(UNKNOWN) from None
    if info.status in ENDED_INVITATIONS:
        if info.status == "accepted":
            visitor = find_visitor(services, inbound)
            if visitor is not None and visitor.session.email == info.email:
                raise Gone(ACCEPTED.format(info.organization_name))
        raise Gone(ENDED_INVITATIONS[info.status])
    return token, info


def _page(
    services: Services,
    inbound: Inbound,
    token: str,
    info: InvitationInfo,
    error: GatewayError | None = None,
    name: str = "",
) -> Outbound:
    """Show the invitation with the next step: accept it, change accounts, sign in or sign up."""
    visitor = find_visitor(services, inbound)
    shown: dict[str, Any] = {
        "organization": info.organization_name,
        "inviter": info.inviter or "The operator of this installation",
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
        return page(inbound, "invitation_sign_up.html", TITLE, **shown, name=name, shortest=str(MIN_LENGTH))
    if visitor.session.email == info.email:
        return page(inbound, "invitation.html", TITLE, **shown)
    shown["csrf"] = make_csrf(services, visitor, SIGN_OUT)
    return page(inbound, "invitation_other.html", TITLE, 403, **shown, own=visitor.session.email)


def _subject(token: str) -> str:
    """Return the subject of the form's CSRF token: this invitation."""
    return "invitation " + hashlib.sha256(token.encode()).hexdigest()


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", PATH, as_page(show)),
    Operation("POST", PATH, as_page(accept), body="form"),
)
