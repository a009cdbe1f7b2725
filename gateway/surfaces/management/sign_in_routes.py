"""`/auth`: sign-in by password, sign-up by invitation, the session, the password."""

from msgspec.json import encode

from gateway.accounts.service_account_login import is_service_account_token
from gateway.accounts.sessions import NewSession, SessionInfo
from gateway.admin.sign_in import PendingSignIn
from gateway.errors import InvalidRequest, Unauthenticated
from gateway.surfaces.management.access_groups import SIGNED_IN
from gateway.surfaces.management.answers import MemberAnswer, UserAnswer
from gateway.surfaces.management.managed_operation import ManagedCall, managed, public
from gateway.surfaces.management.member_routes import show_invitation, show_member
from gateway.surfaces.management.sign_in_answers import (
    AccountSessionAnswer,
    FoundInvitationAnswer,
    MembershipAnswer,
    OwnServiceAccountAnswer,
    OwnUserAnswer,
    SessionAnswer,
    SessionTimesAnswer,
    SignedInAnswer,
    SignedOutAnswer,
)
from gateway.surfaces.visitors.validation_schemas import Body, TextField, read_body
from gateway.surfaces.visitors.visitor import (
    agent_of,
    check_api_origin,
    device_cookie,
    place_of,
    token_of,
    visit,
    write_cookie,
)
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.surfaces.web.http_responses import json_reply
from gateway.worker.services import Services

TAG = "Sign-in"
MAX_PASSWORD_LENGTH = 1024


class SignIn(Body):
    email = TextField(1, required=True)
    password = TextField(1, MAX_PASSWORD_LENGTH, required=True)
    code = TextField(1, 64)


class SignUp(Body):
    token = TextField(8, 256, required=True)
    email = TextField(0, 320)
    name = TextField(0, load_default="")
    password = TextField(1, MAX_PASSWORD_LENGTH, required=True)


class Token(Body):
    token = TextField(8, 256, required=True)


class ChangePassword(Body):
    currentPassword = TextField(1, MAX_PASSWORD_LENGTH, required=True)
    newPassword = TextField(1, MAX_PASSWORD_LENGTH, required=True)


def sign_in(services: Services, inbound: Inbound) -> Outbound:
    """A session for an e-mail address and password, plus `code` if a second factor is enabled."""
    check_api_origin(services, inbound)
    fields = read_body(SignIn, inbound)
    service = services.management.sign_in
    place = place_of(inbound)
    outcome = service.begin(fields["email"], fields["password"], place)
    if isinstance(outcome, PendingSignIn):
        if "code" not in fields:
            text = "This account has a second factor: send its code, or a recovery code, as `code` as well."
            raise Unauthenticated(text, code="second_factor_required")
        outcome = service.finish(outcome.ticket, fields["code"], place)
    return _reply_with_session(inbound, outcome.session, outcome.device)


def sign_up(services: Services, inbound: Inbound) -> Outbound:
    """Create an account and a session with an invitation. The account gets the invitation's address; `email` may
    repeat it."""
    check_api_origin(services, inbound)
    fields = read_body(SignUp, inbound)
    if fields.get("email", "").strip():
        invitation = services.management.find_invitation(fields["token"], inbound.peer)
        if fields["email"].strip().lower() != invitation.email.lower():
            raise InvalidRequest("This invitation is for another e-mail address.", param="email")
    session = services.management.sign_up(
        fields["token"], fields["name"], fields["password"], inbound.peer, agent_of(inbound)
    )
    return _reply_with_session(inbound, session)


def find_invitation(services: Services, inbound: Inbound) -> Outbound:
    """The details of an invitation, before it is accepted."""
    invitation = services.management.find_invitation(read_body(Token, inbound)["token"], inbound.peer)
    return json_reply(encode(FoundInvitationAnswer(show_invitation(invitation))), inbound.shown_id)


def get_session(services: Services, inbound: Inbound) -> Outbound:
    """Return the signed-in user, `null` without a session. This extends a cookie's lifetime at most once a day. The
    token of a service account gives the service account with its scopes."""
    token, by_cookie = token_of(inbound)
    if is_service_account_token(token):
        account = services.accounts.service_accounts.find(token, inbound.peer).info
        known = AccountSessionAnswer(OwnServiceAccountAnswer.of(account))
        return json_reply(encode(known), inbound.shown_id)
    try:
        session = visit(services, token).session
    except Unauthenticated:
        return json_reply(b"null", inbound.shown_id)
    headers = [write_cookie(inbound, token)] if by_cookie and session.refreshed else []
    answer = SessionAnswer(show_user(session), SessionTimesAnswer.of(session))
    return json_reply(encode(answer), inbound.shown_id, headers=headers)


def sign_out(services: Services, inbound: Inbound) -> Outbound:
    """End the session; succeeds also when there is none."""
    token, by_cookie = token_of(inbound)
    if by_cookie:
        check_api_origin(services, inbound, required=True)
    try:
        session = visit(services, token).session
        services.management.sessions.close(session.id, actor=session.user_id)
    except Unauthenticated:
        pass
    return json_reply(encode(SignedOutAnswer(True)), inbound.shown_id, headers=[write_cookie(inbound, "", 0)])


def change_password(call: ManagedCall[None]) -> None:
    """Requires the current password; ends every other session of yours."""
    session = call.visitor.session
    call.management.change_password(
        session.user_id, session.email, call.fields["currentPassword"], call.fields["newPassword"], session.id
    )


def confirm_email(call: ManagedCall[None]) -> None:
    """Confirm that the address of your account is yours. Until then, no password can be reset with an address that
    provisioning gave your account."""
    call.visitor.check_account_access()
    call.management.confirm_email(call.actor, call.visitor.session.email)


def accept_invitation(call: ManagedCall[None]) -> MemberAnswer:
    """Join an organization by an invitation that was sent to this account's address."""
    call.visitor.check_account_access()
    member = call.management.accept_invitation(call.fields["token"], call.actor)
    return show_member(call.database, member, call.management.budgets.status(member.id))


def show_me(call: ManagedCall[None]) -> OwnUserAnswer:
    """The signed-in user, and their role in each organization."""
    visitor = call.visitor
    memberships = [
        MembershipAnswer(member.organization_id, member.id, member.role) for member in visitor.memberships.values()
    ]
    return OwnUserAnswer(show_user(visitor.session), memberships, visitor.is_operator())


def show_user(session: SessionInfo) -> UserAnswer:
    return UserAnswer(session.user_id, session.email, session.name)


def _reply_with_session(inbound: Inbound, session: NewSession, device: str = "") -> Outbound:
    """Return the response to a sign-in: the user, the token for clients, the cookies for browsers."""
    info = session.info
    answer = SignedInAnswer(session.token, show_user(info), SessionTimesAnswer.of(info))
    cookies = [write_cookie(inbound, session.token)]
    if device:
        cookies.append(device_cookie(inbound, device))
    return json_reply(encode(answer), inbound.shown_id, headers=cookies)


OPERATIONS: tuple[Operation, ...] = (
    public("POST", "/auth/sign-in/email", sign_in, "Sign in by password", request=SignIn, answer=SignedInAnswer,
           errors=(401, 429)),
    public("POST", "/auth/sign-up/email", sign_up, "Sign up by invitation", request=SignUp, answer=SignedInAnswer,
           errors=(404, 409, 429)),
    public("POST", "/auth/invitation", find_invitation, "Show an invitation", request=Token,
           answer=FoundInvitationAnswer, errors=(404, 429)),
    public("GET", "/auth/get-session", get_session, "Show the signed-in person",
           answer=SessionAnswer | AccountSessionAnswer | None, errors=(401, 403, 410), access="visitor"),
    public("POST", "/auth/sign-out", sign_out, "Sign out", answer=SignedOutAnswer, access="visitor"),
    managed("POST", "/auth/change-password", change_password, "Change your password", tag=TAG, who=SIGNED_IN,
            request=ChangePassword, message="Password changed; your other sessions have ended.",
            audit="user.update_password"),
    managed("POST", "/auth/confirm-email", confirm_email, "Confirm your e-mail address", tag=TAG, who=SIGNED_IN,
            message="The address is confirmed.", audit="user.confirm_email"),
    managed("POST", "/auth/accept-invitation", accept_invitation, "Accept an invitation", tag=TAG, who=SIGNED_IN,
            request=Token, inside="member", audit=("invitation.accept", "member.create", "member.update")),
    managed("GET", "/user/me", show_me, "Show your account and memberships", tag=TAG, who=SIGNED_IN),
)  # fmt: skip
