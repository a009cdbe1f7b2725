"""`/auth`: sign-in by password, sign-up by invitation, the session, the password."""

from typing import Any

from gateway.admin.sign_in import PendingSignIn
from gateway.errors import InvalidRequest, Unauthenticated
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.http_responses import json_reply
from gateway.surfaces.management import shapes
from gateway.surfaces.management.described import managed, public
from gateway.surfaces.management.presenters import show_invitation, show_member
from gateway.surfaces.validation_schemas import Body, TextField, read_body
from gateway.surfaces.visitor import (
    Visitor,
    agent_of,
    check_origin,
    place_of,
    session_reply,
    show_session,
    show_user,
    token_of,
    visit,
    write_cookie,
)
from gateway.worker.services import Services

TAG = "Sign-in"
LONGEST_PASSWORD = 1024


class SignIn(Body):
    email = TextField(1, required=True)
    password = TextField(1, LONGEST_PASSWORD, required=True)
    code = TextField(1, 64)


class SignUp(Body):
    token = TextField(8, 256, required=True)
    email = TextField(0, 320)
    name = TextField(0, load_default="")
    password = TextField(1, LONGEST_PASSWORD, required=True)


class Token(Body):
    token = TextField(8, 256, required=True)


class ChangePassword(Body):
    currentPassword = TextField(1, LONGEST_PASSWORD, required=True)
    newPassword = TextField(1, LONGEST_PASSWORD, required=True)


def sign_in(services: Services, inbound: Inbound) -> Outbound:
    """A session for an e-mail address and password, plus `code` if a second factor is enabled."""
    check_origin(services, inbound)
    given = read_body(SignIn, inbound)
    service = services.management.sign_in
    place = place_of(inbound)
    found = service.begin(given["email"], given["password"], place)
    if isinstance(found, PendingSignIn):
        if "code" not in given:
            text = "This account has a second factor: send its code, or a recovery code, as `code` as well."
            raise Unauthenticated(text, code="second_factor_required")
        found = service.finish(found.ticket, given["code"], place)
    return session_reply(inbound, found.session, found.device)


def sign_up(services: Services, inbound: Inbound) -> Outbound:
    """Create an account and a session with an invitation. The account gets the invitation's address; `email` may
    repeat it."""
    check_origin(services, inbound)
    given = read_body(SignUp, inbound)
    if given.get("email", "").strip():
        invited = services.management.find_invitation(given["token"], inbound.peer)
        if given["email"].strip().lower() != invited.email.lower():
            raise InvalidRequest("This invitation is for another e-mail address.", param="email")
    made = services.management.sign_up(
        given["token"], given["name"], given["password"], inbound.peer, agent_of(inbound)
    )
    return session_reply(inbound, made)


def find_invitation(services: Services, inbound: Inbound) -> Outbound:
    """The details of an invitation, before it is accepted."""
    given = read_body(Token, inbound)
    invitation = services.management.find_invitation(given["token"], inbound.peer)
    return json_reply({"invitation": show_invitation(invitation)}, inbound.shown_id)


def get_session(services: Services, inbound: Inbound) -> Outbound:
    """Return the signed-in user, `null` without a session. This extends a cookie's lifetime at most once a day."""
    token, by_cookie = token_of(inbound)
    try:
        session = visit(services, token).session
    except Unauthenticated:
        return json_reply(b"null", inbound.shown_id)
    if by_cookie and session.refreshed:
        headers = [write_cookie(inbound, token)]
    else:
        headers = []
    body = {"user": show_user(session), "session": show_session(session)}
    return json_reply(body, inbound.shown_id, headers=headers)


def sign_out(services: Services, inbound: Inbound) -> Outbound:
    """End the session; succeeds also when there is none."""
    token, by_cookie = token_of(inbound)
    if by_cookie:
        check_origin(services, inbound, required=True)
    try:
        session = visit(services, token).session
        services.management.sessions.close(session.id, actor=session.user_id)
    except Unauthenticated:
        pass
    return json_reply({"success": True}, inbound.shown_id, headers=[write_cookie(inbound, "", 0)])


def change_password(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Requires the current password; ends every other session of yours."""
    given = read_body(ChangePassword, inbound)
    session = visitor.session
    visitor.services.management.change_password(
        session.user_id, session.email, given["currentPassword"], given["newPassword"], session.id
    )
    return {"message": "Password changed; your other sessions have ended."}


def accept_invitation(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Join an organization by an invitation that was sent to this account's address."""
    given = read_body(Token, inbound)
    management = visitor.services.management
    member = management.accept_invitation(given["token"], visitor.user_id)
    return {"member": show_member(member, management.budgets.status(member.id))}


def show_me(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """The signed-in user, and their role in each organization."""
    memberships = [
        {"organizationId": one.organization_id, "memberId": one.id, "role": one.role}
        for one in visitor.memberships.values()
    ]
    return {"user": show_user(visitor.session), "memberships": memberships, "operator": visitor.is_operator()}


OPERATIONS: tuple[Operation, ...] = (
    public("POST", "/auth/sign-in/email", sign_in, "Sign in by password", request=SignIn, answer=shapes.SIGNED_IN,
           errors=(401, 429)),
    public("POST", "/auth/sign-up/email", sign_up, "Sign up by invitation", request=SignUp, answer=shapes.SIGNED_IN,
           errors=(404, 409, 429)),
    public("POST", "/auth/invitation", find_invitation, "What an invitation is for", request=Token,
           answer=shapes.shape(invitation=shapes.INVITATION), errors=(404, 429)),
    public("GET", "/auth/get-session", get_session, "Who is signed in",
           answer={"anyOf": [shapes.SESSION, {"type": "null"}]}, errors=(403,)),
    public("POST", "/auth/sign-out", sign_out, "Sign out", answer=shapes.shape(success="boolean")),
    managed("POST", "/auth/change-password", change_password, "Change your password", tag=TAG,
            request=ChangePassword, answer=shapes.DONE, errors=(429,)),
    managed("POST", "/auth/accept-invitation", accept_invitation, "Accept an invitation", tag=TAG, request=Token,
            answer=shapes.shape(member=shapes.MEMBER), errors=(429,)),
    managed("GET", "/user/me", show_me, "Your account and memberships", tag=TAG,
            answer=shapes.shape(user=shapes.USER, memberships=["object"], operator="boolean")),
)  # fmt: skip
