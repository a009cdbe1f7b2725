"""The answers of sign-in: sessions, devices, the second factor and the signed-in person."""

from collections.abc import Sequence

from gateway.surfaces.management.answers import InvitationAnswer, UserAnswer
from gateway.surfaces.web.answer_structs import Answer, Time


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
