"""`/auth`: the visitor's own sessions and second factor."""

from typing import Any

from gateway.clock import to_iso
from gateway.surfaces.http import Inbound, Operation
from gateway.surfaces.management import shapes
from gateway.surfaces.management.described import managed
from gateway.surfaces.validation_schemas import Body, TextField, read_body
from gateway.surfaces.visitor import Visitor

TAG = "Sign-in"
LONGEST_PASSWORD = 1024
LONGEST_CODE = 64


class Password(Body):
    password = TextField(1, LONGEST_PASSWORD, required=True)


class Code(Body):
    code = TextField(1, LONGEST_CODE, required=True)


class PasswordAndCode(Body):
    password = TextField(1, LONGEST_PASSWORD, required=True)
    code = TextField(1, LONGEST_CODE, required=True)


def list_sessions(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Your active sessions, newest first."""
    found = visitor.services.management.sessions.list_sessions(visitor.user_id)
    sessions = [
        {
            "id": one.id,
            "agent": one.agent,
            "current": one.id == visitor.session.id,
            "createdAt": to_iso(one.created_at_us),
            "lastUsedAt": to_iso(one.used_at_us),
            "expiresAt": to_iso(one.expires_at_us),
        }
        for one in found
    ]
    return {"sessions": sessions}


def end_session(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Its token is refused from then on; ending the current session signs you out."""
    visitor.services.management.sessions.close_one(visitor.user_id, inbound.params["session_id"])
    return {"message": "Session ended."}


def sign_out_everywhere(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """End all your sessions, including this one, and pending sign-ins of devices."""
    count = visitor.services.management.sessions.close_others(visitor.user_id)
    return {"message": f"Signed out everywhere: {count} sessions ended."}


def show_factor(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Whether a second factor is enabled, and how many recovery codes are left; never its secret."""
    standing = visitor.services.management.second_factors.find(visitor.user_id)
    if standing.active:
        since = to_iso(standing.since_us)
    else:
        since = None
    return {"active": standing.active, "since": since, "recoveryCodesLeft": standing.codes_left}


def begin_factor(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """A new secret for an authenticator app; enabled once a code from it is confirmed."""
    given = read_body(Password, inbound)
    management = visitor.services.management
    session = visitor.session
    management.check_password(session.user_id, session.email, given["password"])
    made = management.second_factors.begin(session.user_id, session.email)
    return {"secret": made.secret, "uri": made.uri}


def confirm_factor(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Enable it; the recovery codes are shown only in this response. Every other session ends."""
    given = read_body(Code, inbound)
    management = visitor.services.management
    session = visitor.session
    return {"recoveryCodes": management.confirm_second_factor(session.user_id, given["code"], session.id)}


def remove_factor(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Disable the second factor; requires the password and a code (or a recovery code)."""
    given = read_body(PasswordAndCode, inbound)
    session = visitor.session
    visitor.services.management.remove_second_factor(session.user_id, session.email, given["password"], given["code"])
    return {"message": "The second factor was removed."}


SESSION = shapes.shape(
    id="string", agent="string", current="boolean", createdAt="string", lastUsedAt="string", expiresAt="string"
)
FACTOR = shapes.shape(active="boolean", recoveryCodesLeft="integer")

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", "/auth/sessions", list_sessions, "List your sessions", tag=TAG,
            answer=shapes.shape(sessions=[SESSION])),
    managed("DELETE", "/auth/sessions/<session_id>", end_session, "End one of your sessions", tag=TAG,
            answer=shapes.DONE),
    managed("POST", "/auth/sign-out-everywhere", sign_out_everywhere, "Sign out everywhere", tag=TAG,
            answer=shapes.DONE),
    managed("GET", "/auth/second-factor", show_factor, "Show your second factor", tag=TAG, answer=FACTOR),
    managed("POST", "/auth/second-factor", begin_factor, "Begin a second factor", tag=TAG, request=Password,
            answer=shapes.shape(secret="string", uri="string"), errors=(429,)),
    managed("POST", "/auth/second-factor/confirm", confirm_factor, "Confirm a second factor", tag=TAG, request=Code,
            answer=shapes.shape(recoveryCodes=["string"]), errors=(429,)),
    managed("POST", "/auth/second-factor/remove", remove_factor, "Remove your second factor", tag=TAG,
            request=PasswordAndCode, answer=shapes.DONE, errors=(429,)),
)  # fmt: skip
