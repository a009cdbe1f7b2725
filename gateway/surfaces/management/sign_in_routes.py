"""`/auth`: sign-in by password, sign-up by invitation, the session, the password; the visitor's own sessions, second
factor, and accounts at identity providers."""

from collections.abc import Sequence
from functools import partial

from msgspec.json import encode

from gateway.accounts import identities
from gateway.accounts.identities import LinkedIdentity
from gateway.accounts.service_accounts import is_service_account_token
from gateway.accounts.sessions import NewSession, SessionInfo
from gateway.admin.sign_in import PendingSignIn
from gateway.errors import InvalidRequest, Unauthenticated
from gateway.runtime.plurals import many
from gateway.surfaces.management.access_groups import SIGNED_IN
from gateway.surfaces.management.answers import DoneAnswer, IdentityAnswer, InvitationAnswer, MemberAnswer, UserAnswer
from gateway.surfaces.management.managed_operation import ListPageQuery, ManagedCall, managed, public
from gateway.surfaces.management.member_routes import show_invitation, show_member
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
from gateway.surfaces.web.answer_structs import Answer, Time
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.surfaces.web.http_responses import json_reply
from gateway.worker.services import Services

# The answers of sign-in: sessions, devices, the second factor and the signed-in person.


class SessionTimesAnswer(Answer):
    id: str
    created_at: Time
    expires_at: Time


class SessionAnswer(Answer):
    user: UserAnswer
    session: SessionTimesAnswer


class OwnServiceAccountAnswer(Answer):
    """The service account of the request's token."""

    id: str
    name: str
    organization_id: str
    scopes: Sequence[str]
    expires_at: Time | None


class AccountSessionAnswer(Answer):
    service_account: OwnServiceAccountAnswer


class SignedInAnswer(Answer):
    token: str
    user: UserAnswer
    session: SessionTimesAnswer


class SignedOutAnswer(Answer):
    success: bool


class FoundInvitationAnswer(Answer):
    invitation: InvitationAnswer


class OwnSessionAnswer(Answer):
    """A session in the list of the user's own sessions."""

    id: str
    agent: str
    current: bool
    created_at: Time
    last_used_at: Time
    expires_at: Time


class SecondFactorAnswer(Answer):
    active: bool
    since: Time | None
    recovery_codes_left: int


class NewSecondFactorAnswer(Answer):
    secret: str
    uri: str


class MembershipAnswer(Answer):
    organization_id: str
    member_id: str
    role: str


class OwnUserAnswer(Answer):
    user: UserAnswer
    memberships: list[MembershipAnswer]
    operator: bool


class DeviceGrantAnswer(Answer, rename=None):
    """The member names of RFC 8628."""

    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str
    expires_in: int
    interval: int


class DeviceTokenAnswer(Answer, rename=None):
    access_token: str
    token_type: str
    expires_in: int
    scope: str


class DeviceRequestAnswer(Answer):
    user_code: str
    client_id: str
    status: str
    expires_at: Time


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


# `/auth`: the visitor's own sessions and second factor.

MAX_CODE_LENGTH = 64


class Password(Body):
    password = TextField(1, MAX_PASSWORD_LENGTH, required=True)


class Code(Body):
    code = TextField(1, MAX_CODE_LENGTH, required=True)


class PasswordAndCode(Body):
    password = TextField(1, MAX_PASSWORD_LENGTH, required=True)
    code = TextField(1, MAX_CODE_LENGTH, required=True)


def list_sessions(call: ManagedCall[None]) -> list[OwnSessionAnswer]:
    """Your active sessions, newest first."""
    return [
        OwnSessionAnswer.of(session, current=session.id == call.visitor.session.id, last_used_at=session.used_at_us)
        for session in call.page.read(partial(call.management.sessions.list_sessions, call.actor))
    ]


def end_session(call: ManagedCall[None]) -> None:
    """Its token is refused from then on; ending the current session signs you out."""
    call.management.sessions.close_one(call.actor, call.params["session_id"])


def sign_out_everywhere(call: ManagedCall[None]) -> DoneAnswer:
    """End all your sessions, including this one, and pending sign-ins of devices."""
    count = call.management.sessions.close_others(call.actor)
    return DoneAnswer(f"Signed out everywhere: {many(count, 'session')} ended.")


def show_factor(call: ManagedCall[None]) -> SecondFactorAnswer:
    """Whether a second factor is enabled, and how many recovery codes are left; never its secret."""
    factor = call.management.second_factors.find(call.actor)
    return SecondFactorAnswer.of(
        factor, since=factor.since_us if factor.active else None, recovery_codes_left=factor.codes_left
    )


def begin_factor(call: ManagedCall[None]) -> NewSecondFactorAnswer:
    """A new secret for an authenticator app; enabled once a code from it is confirmed."""
    session = call.visitor.session
    call.management.check_password(session.user_id, session.email, call.fields["password"])
    return NewSecondFactorAnswer.of(call.management.second_factors.begin(session.user_id, session.email))


def confirm_factor(call: ManagedCall[None]) -> list[str]:
    """Enable it; the recovery codes are shown only in this response. Every other session ends."""
    return call.management.confirm_second_factor(call.actor, call.fields["code"], call.visitor.session.id)


def remove_factor(call: ManagedCall[None]) -> None:
    """Disable the second factor; requires the password and a code (or a recovery code)."""
    session = call.visitor.session
    call.management.remove_second_factor(session.user_id, session.email, call.fields["password"], call.fields["code"])


# `/auth/identities`: the visitor's accounts at identity providers.


def list_own(call: ManagedCall[None]) -> list[IdentityAnswer]:
    """Your connected accounts at identity providers, oldest first. A person is known there by issuer and subject, not
    by an e-mail address."""
    return [show_identity(identity) for identity in identities.list_identities(call.database, call.actor)]


def disconnect(call: ManagedCall[None]) -> None:
    """Disconnect an identity: its sessions end, and it opens your account no more."""
    call.visitor.check_account_access()
    identities.unlink(call.database, call.actor, call.params["identity_id"])


def show_identity(identity: LinkedIdentity) -> IdentityAnswer:
    """Return an identity as the API shows it."""
    return IdentityAnswer.of(
        identity, organization_id=identity.organization_id or None, last_used_at=identity.used_at_us
    )


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
    managed("GET", "/auth/sessions", list_sessions, "List your sessions", tag=TAG, who=SIGNED_IN,
            query=ListPageQuery, inside="sessions"),
    managed("DELETE", "/auth/sessions/<session_id>", end_session, "End one of your sessions", tag=TAG, who=SIGNED_IN,
            message="Session ended.", audit="session.delete"),
    managed("POST", "/auth/sign-out-everywhere", sign_out_everywhere, "Sign out everywhere", tag=TAG, who=SIGNED_IN,
            audit="session.delete_others"),
    managed("GET", "/auth/second-factor", show_factor, "Show your second factor", tag=TAG, who=SIGNED_IN),
    managed("POST", "/auth/second-factor", begin_factor, "Set up a second factor", tag=TAG, who=SIGNED_IN,
            request=Password),
    managed("POST", "/auth/second-factor/confirm", confirm_factor, "Confirm a second factor", tag=TAG, who=SIGNED_IN,
            request=Code, inside="recoveryCodes", audit="second_factor.create"),
    managed("POST", "/auth/second-factor/remove", remove_factor, "Remove your second factor", tag=TAG, who=SIGNED_IN,
            request=PasswordAndCode, message="The second factor was removed.",
            audit=("second_factor.delete", "second_factor.use_recovery_code")),
    managed("GET", "/auth/identities", list_own, "List your connected identities", tag=TAG, who=SIGNED_IN,
            inside="identities"),
    managed("DELETE", "/auth/identities/<identity_id>", disconnect, "Disconnect an identity", tag=TAG, who=SIGNED_IN,
            message="The identity was disconnected.", audit="identity.unlink"),
)  # fmt: skip
